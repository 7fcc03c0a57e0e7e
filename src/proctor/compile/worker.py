"""What a process of a bench does: loads the model once, compiles its targets, and times them against eager."""

from __future__ import annotations

import os
import platform
import sys
import traceback
from collections.abc import Callable, Iterator

import msgspec

from proctor.compile.orders import Order, Piece
from proctor.engines.registry import make_engine
from proctor.rows import UserError, told

Tell = Callable[[Piece], None]


def main(output: int) -> None:
    """Reads an order from the standard input, and tells what it finds.

    Args:
        output: descriptor that pieces are written to.
    """
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Order)
    os.set_inheritable(output, False)
    with os.fdopen(output, "wb", buffering=0) as pipe:

        def tell(piece: Piece) -> None:
            pipe.write(msgspec.json.encode(piece) + b"\n")

        try:
            for piece in work(order):
                tell(piece)
        except UserError as error:
            tell(Piece(trouble=error.what, mistake=True, where=error.where, fix=error.fix))
        except Exception as error:  # whatever a compiler raises, the bench says so
            traceback.print_exc()
            tell(Piece(trouble=told(error)))
        else:
            tell(Piece(finished=True))


def work(order: Order) -> Iterator[Piece]:
    """Everything that an order asks for, a piece at a time.

    Raises:
        UserError: the model, its targets or the sample are not such that anything can be measured.
    """
    make_engine(order.config).check()
    yield Piece(doing="loading the model")
    import torch
    import transformers

    from proctor.compile.loaded import Loaded

    _check_backend(order.how.backend)
    try:
        loaded = Loaded(order.config, order.how.targets)
    except (OSError, ValueError) as error:  # a directory that is damaged, or of no known kind
        raise UserError(f"the model cannot be loaded: {told(error)}", where="engine.checkpoints") from error
    versions = {"python": platform.python_version(), "transformers": transformers.__version__}
    with torch.inference_mode():
        yield Piece(doing="catching inputs")
        scenes = [loaded.scene(unit) for unit in order.units]
        yield Piece(
            subject={**loaded.subject(), **versions},
            targets={target.name: len(target.modules) for target in loaded.targets},
            shapes=tuple(scene.shape for scene in scenes),
        )
        if order.task == "explain":
            from proctor.compile.explaining import explained

            yield from explained(loaded, scenes, order.how)
        else:
            from proctor.compile.benched import benched

            yield from benched(order, loaded, scenes)


def _check_backend(name: str) -> None:
    import torch._dynamo as dynamo

    known: list[str] = dynamo.list_backends(None)  # those for debugging among them
    if name not in known:
        raise UserError(
            f"torch has no backend {name!r}", where="engine.compile.backend", fix=f"one of {', '.join(known)}"
        )
