"""Triton kernels made by torch.compile (Inductor): ``triton_{kind}_fused_{operations}_{number}``.

By ``torch/_inductor/codegen/triton.py`` and ``utils.get_fused_kernel_name``: the first three letters of the kind of
kernel, the names of the operations in alphabetical order, and a number that only tells kernels of one program apart.
Operations are joined by the character that they contain, so they are told apart by a list of ATen's names.
"""

from __future__ import annotations

import re

from proctor.trace.names.decoded import Launch, Reading

_SOURCE = "torch/_inductor: codegen/triton.py, utils.get_fused_kernel_name, wrapper_benchmark.py"
_KINDS = {
    "poi": "pointwise",
    "red": "reduction in a loop",
    "per": "persistent reduction: a row fits one block",
    "tem": "template (GEMM, convolution or attention)",
    "for": "foreach: one operation over many tensors",
    "spl": "split scan",
    "unk": "of a kind that Inductor did not name",
}
_NAME = re.compile(r"(?:\w*?_)?triton_(poi|red|per|tem|for|spl|unk)_fused_(\w*)")
_TEMPLATE = re.compile(r"triton_(mm|bmm|addmm|baddbmm|mm_plus_mm|scaled_mm|flex_attention|convolution2?d?)((?:_\w+)?)")
_OPERATIONS = (
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention", "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional", "_scaled_dot_product_cudnn_attention", "native_batch_norm_backward",
    "native_layer_norm_backward", "_softmax_backward_data", "_log_softmax_backward_data", "threshold_backward",
    "nll_loss_backward", "nll_loss_forward", "native_layer_norm", "native_group_norm", "native_dropout", "masked_fill",
    "embedding_dense_backward", "constant_pad_nd", "scalar_tensor", "index_put", "index_select", "slice_scatter",
    "select_scatter", "split_with_sizes", "select_backward", "slice_backward", "_unsafe_index", "_unsafe_view",
    "_unsafe_index_put", "_to_copy", "_softmax", "_log_softmax", "rms_norm", "_fused_rms_norm", "new_zeros", "new_ones",
    "new_full", "zeros_like", "ones_like", "full_like", "empty_like", "max_pool2d_with_indices", "_adaptive_avg_pool2d",
    "_low_memory_max_pool2d_with_offsets", "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d",
    "gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward", "hardtanh_backward", "clamp_min",
    "clamp_max", "logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "var_mean",
    "floor_divide", "scatter_add", "scatter_reduce", "index_add", "convert_element_type", "repeat_interleave",
    "broadcast_in_dim", "linalg_vector_norm", "_local_scalar_dense", "_scaled_mm", "flex_attention", "leaky_relu",
    "bernoulli_p", "inductor_random", "inductor_seeds", "lift_fresh", "cross_entropy", "layer_norm", "group_norm",
    "batch_norm",
)  # fmt: skip
_BY_LENGTH = tuple(sorted(_OPERATIONS, key=len, reverse=True))


def read(name: str, _: Launch) -> Reading | None:
    """Reads Inductor's kernels; None if it is none."""
    name = name[:2_000]
    match = _NAME.fullmatch(name)
    if match:
        return _fused(match[1], match[2])
    template = _TEMPLATE.fullmatch(name)
    if template:
        return _template(template[1], template[2])
    old = re.fullmatch(r"triton__?((?:\d+d?(?:e\w*?)?c?)+)", name)
    return _old(old[1]) if old else None


def _fused(kind: str, rest: str) -> Reading:
    reading = Reading(family="Inductor", source=_SOURCE)
    reading.add("compiler", "triton", "Triton code written by torch.compile (Inductor)")
    reading.add("kind", kind, _KINDS[kind])
    operations, number = _operations(rest)
    if operations:
        reading.add(
            "operations",
            ", ".join(operations),
            f"fused here: {', '.join(operations)}",
            "alphabetical, not in the order they run; names that contain _ are told apart by a list of ATen's",
        )
    if number:
        reading.add(
            "number", number, "tells kernels of one compiled program apart; changes from compilation to compilation"
        )
    what = ", ".join(operations) if operations else "operations that the name does not list"
    reading.summary = f"torch.compile, {_KINDS[kind].partition(':')[0]}: {what}"
    return reading


def _operations(text: str) -> tuple[list[str], str]:
    """The operations in `text`, and the number at its end."""
    body, _, number = text.rpartition("_")
    if not number.isdigit():
        body, number = text, ""
    found: list[str] = []
    while body:
        known = next((name for name in _BY_LENGTH if body == name or body.startswith(f"{name}_")), None)
        if known is None:
            start = len(body) - len(body.lstrip("_"))  # an unknown name may begin with _
            end = body.find("_", start + 1)
            known = body if end < 0 else body[:end]
        found.append(known)
        body = body[len(known) + 1 :]
    return [name for name in found if name.strip("_")], number


def _template(operation: str, rest: str) -> Reading:
    reading = Reading(family="Inductor", source=_SOURCE, summary=f"torch.compile, template for {operation}")
    reading.add("compiler", "triton", "Triton code written by torch.compile (Inductor)")
    reading.add("template", operation, f"template for {operation}, with a configuration chosen by autotuning")
    if rest.strip("_"):
        reading.unknown("suffix", rest.strip("_"))
    return reading


def _old(text: str) -> Reading:
    """Names before Inductor's own: Triton's mangling alone, one number an argument."""
    reading = Reading(
        family="Triton",
        source="Triton's specialisation suffix of that time",
        summary="old torch.compile kernel; it does not say what it computes",
    )
    reading.add("compiler", "triton", "Triton code, probably written by torch.compile of that time")
    counted = re.findall(r"(\d+)(d?)", text)
    divisible = [number for number, mark in counted if mark]
    reading.add(
        "arguments", text, f"numbers are arguments; d marks those divisible by 16: {', '.join(divisible) or 'none'}"
    )
    return reading
