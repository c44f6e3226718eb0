"""Which operators raise for some contents of their arguments, whatever their shapes and types: they must run though nobody reads what they
give."""

from __future__ import annotations

_BY_CONTENT = frozenset(
    f"aten::{name}"
    for name in (
        # positions: in a tensor, of classes, of codes
        "embedding embedding_bag _embedding_bag _embedding_bag_forward_only embedding_renorm index index_select gather take put index_put "
        "_index_put_impl "
        "_unsafe_index_put index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce nll_loss nll_loss_forward "
        "nll_loss2d_forward "
        "multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward _ctc_loss max_unpool2d max_unpool3d lu_unpack "
        "searchsorted "
        # values out of range, or too few of them
        "binary_cross_entropy multinomial bernoulli normal poisson binomial bincount histc histogram histogramdd _histogramdd_bin_edges "
        "_histogramdd_from_bin_cts masked_scatter repeat_interleave segment_reduce _pack_padded_sequence "
        # matrices that cannot be decomposed
        "cholesky _linalg_svd _linalg_eigh _linalg_eigvals linalg_eig linalg_lstsq"
    ).split()
)
_DIVISIONS = frozenset(f"aten::{name}" for name in ("floor_divide", "remainder", "fmod", "div", "divide"))
"""Of integers: by zero."""


def raises_for_content(packet: str, dtype: str, divides_by_tensor: bool) -> bool:
    """Whether the operator (``"aten::gather"``) may raise because of what is in its arguments. ``dtype``: of its result;
    ``divides_by_tensor``: its second argument is one."""
    if packet in _DIVISIONS:
        return divides_by_tensor and dtype.lstrip("u").startswith("int")
    return packet in _BY_CONTENT
