"""What SWIG makes of plait.h: numbers for handles, tuples for several results."""
from typing import Any

def __getattr__(name: str) -> Any: ...
