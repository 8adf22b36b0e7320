"""What a block adds to its residual stream, seen from outside while it runs, and changed for an ablation.

A block's input is the stream. Whatever is added to the stream is a contribution: of attention if the block's attention
ran since the last addition, of the feed-forward otherwise. The sum is the new stream, and so is what a norm makes of it
(models that normalise after the addition go on from there). A variant returns something else than the sum.

Nothing is assumed of a block but that its additions lead from its input to its output, and exactly that is checked:
where they do not, there is a reason and no number. The same watch finds the residual between attention and feed-forward
in an ordinary trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fbt_core.model.ablation import VARIANTS

ADDITIONS = ("add", "add_", "__add__", "__radd__", "__iadd__")
IN_PLACE = ("add_", "__iadd__")
RECASTS = ("to", "float", "half", "bfloat16", "type", "clamp")
"""Functions whose result is the stream again, in another dtype or range."""
PRODUCTS = (
    "linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "conv1d", "conv2d",
    "scaled_dot_product_attention",
)  # fmt: skip
"""Functions that make a contribution of what they read: none ran between two additions of one parallel block."""

ATTENTION, FEED_FORWARD, BOTH = "attention", "feed-forward", "attention and feed-forward"


@dataclass(eq=False)
class Passage:
    """One run of one block, as far as it was seen."""

    stack: str
    block: nn.Module
    before: Tensor
    stream: Tensor
    same: list[Tensor] = field(default_factory=list)  # other tensors that stand for the stream
    additions: list[str] = field(default_factory=list)  # whose each was, in order
    middle: Tensor | None = None  # the stream that the feed-forward was added to
    after: Tensor | None = None
    seen: bool = False  # whether the additions lead from before to after
    attended: bool = False  # since the last addition, and so the next two
    fed: bool = False
    worked: bool = False
    silenced: bool = False  # the feed-forward of a parallel block returned zeros
    mixers: list[nn.Module] = field(default_factory=list)  # that ran, outermost first
    attention_norm: nn.Module | None = None  # whose output the attention read; None where it read the stream
    final_norm: nn.Module | None = None  # that read the block's output, outside of any block
    rotary: tuple[Tensor, Tensor] | None = None
    norms: list[tuple[Tensor, nn.Module]] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)  # of attention, for whoever captures them
    maps: list[tuple[nn.Module, Tensor]] = field(default_factory=list)  # that mixers returned, where wanted

    def is_stream(self, value: object) -> bool:
        """Whether a tensor holds the stream's numbers: the stream, a view of all of it, or its norm."""
        if not isinstance(value, Tensor) or value.numel() != self.stream.numel():
            return False
        return any(value.data_ptr() == tensor.data_ptr() for tensor in (self.stream, *self.same))


class ResidualWatch(TorchFunctionMode):
    """Sees every torch function of one thread while it is active, and changes the additions to the stream."""

    def __init__(self, variant: str = "full", maps: bool = False) -> None:
        super().__init__()
        self.maps = maps
        if variant not in VARIANTS:
            raise ValueError(f"got variant {variant!r}, expected one of {', '.join(VARIANTS)}")
        self.variant = VARIANTS[variant]
        self.passages: list[Passage] = []
        self.current: Passage | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        passage, name = self.current, getattr(func, "__name__", "")
        if passage is None:
            return func(*args, **kwargs)
        if name in ADDITIONS and len(args) == 2 and not kwargs:
            which = [passage.is_stream(operand) for operand in args]
            if sum(which) == 1 and isinstance(args[which.index(False)], Tensor):
                return self._add(passage, func, args, which.index(True))
        passage.worked |= name in PRODUCTS
        result = func(*args, **kwargs)
        if name in RECASTS and args and passage.is_stream(args[0]):
            passage.same.append(result)
        return result

    def _add(self, passage: Passage, func: Callable[..., Any], args: tuple[Any, ...], place: int) -> Tensor:
        stream, contribution = args[place], args[1 - place]
        if contribution.shape != stream.shape:  # a bias, such as a norm's, is no contribution
            return func(*args)
        of = _whose(passage)
        if of == FEED_FORWARD and passage.middle is None and ATTENTION in passage.additions:
            passage.middle = stream
        if self.variant.skip and (self.variant.feed_forward or of != FEED_FORWARD):
            result = self._sum(passage, func, args, place)
        elif of == FEED_FORWARD and not self.variant.feed_forward:
            result = stream
        else:  # the skip is gone, but a parallel block's second addition joins its two contributions
            result = func(*args) if of == "" else contribution
        if of:
            passage.additions.append(of)
        passage.stream, passage.same = result, []
        passage.attended = passage.fed = passage.worked = False
        return result

    def _sum(self, passage: Passage, func: Callable[..., Any], args: tuple[Any, ...], place: int) -> Tensor:
        """The sum. Before it is written over a stream, what was recorded of that is copied."""
        if place == 0 and getattr(func, "__name__", "") in IN_PLACE:
            for known in self.passages:
                for name in ("before", "middle", "after"):
                    value = getattr(known, name)
                    if value is not None and value.data_ptr() == args[0].data_ptr():
                        setattr(known, name, value.clone())
        return func(*args)

    def enter(self, stack: str, block: nn.Module, stream: Tensor) -> None:
        """A block begins to run."""
        self.current = Passage(stack, block, stream, stream)
        self.passages.append(self.current)

    def leave(self, after: Tensor) -> None:
        """The block is done."""
        if (passage := self.current) is None:
            return
        passage.after = after
        passage.seen = bool(passage.additions) and passage.is_stream(after)
        if passage.middle is None and passage.additions[-1:] == [ATTENTION]:
            passage.middle = after
        passage.same, passage.norms = [], []  # norms' outputs, as large as the stream itself, need not live on
        self.current = None

    def check(self) -> None:
        """Raise ``ValueError`` with the reason if what ran was not the variant that was asked for."""
        if self.variant.name == "full":
            return
        if not self.passages:
            raise ValueError("got a model whose blocks were not found, expected a stack of them to leave parts out of")
        for index, passage in enumerate(self.passages):
            if not passage.seen:
                raise ValueError(
                    f"got block {index} ({type(passage.block).__name__}), whose output is not its input with "
                    "contributions added, expected such a block: what to leave out cannot be told"
                )
            if BOTH in passage.additions and not passage.silenced and not self.variant.feed_forward:
                raise ValueError(
                    f"got block {index} ({type(passage.block).__name__}), whose attention and feed-forward are added "
                    "as one, expected two contributions"
                )


def _whose(passage: Passage) -> str:
    """Whose contribution an addition brings; empty for the second addition of one parallel block."""
    if passage.attended:
        return BOTH if passage.fed else ATTENTION
    parallel = BOTH in passage.additions[-1:] and not passage.worked
    return "" if parallel else FEED_FORWARD
