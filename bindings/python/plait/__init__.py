"""Plait: reads ONNX language models, generates from them and fine-tunes them, over the processors that there are.

    import plait
    with plait.open("models/gemma-3-270m") as model, model.generator() as generator:
        for token in generator.submit("The sea", max_tokens=20):
            print(token.text, end="", flush=True)

Options are keyword arguments, and those of the C interface (`plait.options()` lists them). Calls raise `plait.Error`. All objects may be
used by several threads; calls that take long release the interpreter's lock, and Ctrl-C ends them.
"""
from .errors import Code, Error, Timeout
from .generator import Generator, Statistics
from .library import machine, ops, options, plan, system, values, version
from .mailbox import Mailbox
from .model import LogLevel, Model
from .model import Model as open
from .request import Finish, Request, Token, Usage
from .server import Server, ServerStatistics
from .session import Operand, Session
from .tensor import DType, Tensor
from .tokenizer import Facts, Tokenizer
from .trainer import Ending, Evaluation, Step, Trainer
from .world import World

__version__ = version()
__all__ = ["Code", "DType", "Ending", "Error", "Evaluation", "Facts", "Finish", "Generator", "LogLevel", "Mailbox", "Model", "Operand",
           "Request", "Server", "ServerStatistics", "Session", "Statistics", "Step", "Tensor", "Timeout", "Token", "Tokenizer", "Trainer",
           "Usage", "World", "machine", "open", "ops", "options", "plan", "system", "values", "version"]
