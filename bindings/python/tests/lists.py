"""What all tests need: the fixtures and lists that hosts share."""
import os

FIXTURES = os.environ["PLAIT_FIXTURES"]
LISTS = os.environ["PLAIT_LISTS"]


def read(name):
    """A list of NAME = value lines."""
    with open(os.path.join(LISTS, name)) as file:
        return dict(line.strip().split(" = ", 1) for line in file if line.strip() and not line.startswith("#"))


def fixture(name):
    return os.path.join(FIXTURES, name)


def ids_of(text):
    return [int(one) for one in text.split(",")]


SMALL = {"threads": 1, "cache_bytes": "4M"}


def greedy(tokens):
    return {"temperature": 0, "ignore_eos": True, "max_tokens": tokens}
