"""Functions in pieces: for each quarter of an octave a polynomial, whose coefficients one instruction looks up in two registers.

A piece is chosen by the exponent and the upper two bits of the mantissa, of which the last five bits are the place in a table: 32 pieces in
a row. All below the lowest belong to it. Coefficients were fitted (Lawson's iteration) with those of lower degrees rounded already.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..target import Target
from . import isa
from .needs import Needs

_SHIFT = 21
"""Bits of a mantissa below its upper two."""
_PLACES = 32


@dataclass(frozen=True)
class Pieces:
    """``lowest``: bits of a number in the lowest piece, which reaches down to 0; ``most``: what larger arguments are taken for.
    ``numbers``: for all places, a point in the middle of the piece; then, for all places again, coefficients of the powers of the distance
    from it, one power after the other from the constant on. Points are such that the constants are nearly exact."""

    name: str
    lowest: int
    most: float
    numbers: tuple[str, ...]


def in_pieces(needs: Needs, pieces: Pieces, lanes: int, target: Target, fma: str, smaller: str) -> str | None:
    """The name of a function of vectors of float32 that are not negative; NaN stays. None where this processor has no such instruction."""
    lookup = isa.instruction(target, "lookup", "f32", lanes * 32)
    if lookup is None:
        return None
    v, i = needs.vector("f32", lanes), needs.vector("i32", lanes)
    needs.add(f"lookup_{v}", f"static inline {v} lookup_{v}({i} k, {v} x, {v} y) {{ return {lookup}; }}")
    rows = len(pieces.numbers) // _PLACES
    numbers = ", ".join(number if number == "0" else f"{number}f" for number in pieces.numbers)
    name = f"{pieces.name}_{v}"
    at = lambda k: f"lookup_{v}(k, *(const {v}*)({name}_table + {_PLACES * k}), *(const {v}*)({name}_table + {_PLACES * k + lanes}))"
    text = at(rows - 1)
    for k in range(rows - 2, 0, -1):
        text = f"{fma}({text}, t, {at(k)})"
    return needs.add(
        name,
        f"""static const float {name}_table[] __attribute__((aligned(64))) = {{{numbers}}};
static inline {v} {name}({v} x) {{
  const {v} a = {smaller}(({v}){{}} + {pieces.most}f, x);
  const {i} low = ({i}){{}} + {pieces.lowest}, k = (({i})a > low ? ({i})a : low) >> {_SHIFT};
  const {v} t = a - {at(0)};
  return {text};
}}""",
    )


_TANH = (
    "0x1.1feef6p+1 0x1.603deep+1 0x1.a0aefcp+1 0x1.e0f42p+1 0x1.1f0b3ap+2 0x1.5fe8bcp+2 0x1.9f8424p+2 0x1.e0d5a6p+2 0x1.16147ap+3 0 0 0 "
    "0x1.1ffac2p-4 0x1.601648p-4 0x1.a14414p-4 0x1.df414ap-4 0x1.1ff876p-3 0x1.604524p-3 0x1.9f0f28p-3 0x1.dfbc8p-3 0x1.20cc78p-2 "
    "0x1.606ccap-2 0x1.9feb08p-2 0x1.df54f4p-2 0x1.1f4c1ap-1 0x1.609b52p-1 0x1.a10774p-1 0x1.e0294ap-1 0x1.203cf2p+0 0x1.60b924p+0 "
    "0x1.9f9ffep+0 0x1.dfe61cp+0 0x1.f4bcep-1 0x1.fbd90cp-1 0x1.fe7aa6p-1 0x1.ff713cp-1 0x1.ffdeacp-1 0x1.fffb9cp-1 0x1.ffff66p-1 "
    "0x1.ffffecp-1 0x1.fffffep-1 0 0 0 0x1.1f8186p-4 0x1.5f38fp-4 0x1.9fd416p-4 0x1.dd1474p-4 0x1.1e166cp-3 0x1.5cd62ap-3 0x1.9977eap-3 "
    "0x1.d7267p-3 0x1.1960acp-2 0x1.5323a4p-2 0x1.8a7606p-2 0x1.bf2406p-2 0x1.048334p-1 0x1.31bbe2p-1 0x1.5819a6p-1 0x1.77eb42p-1 "
    "0x1.9e86bcp-1 0x1.c2cc16p-1 0x1.d9ab58p-1 0x1.e873f8p-1 0x1.646d4ap-5 0x1.08a92ep-6 0x1.84c612p-8 0x1.1d604ep-9 0x1.0a96cep-11 "
    "0x1.1900b4p-14 0x1.340004p-17 0x1.4005c4p-20 0x1.e6635p-24 0 0 0x1p+0 0x1.fd7a38p-1 0x1.fc3c46p-1 0x1.fab91ep-1 0x1.f90dd6p-1 "
    "0x1.f6025p-1 0x1.f12548p-1 0x1.eb887cp-1 0x1.e4e70cp-1 0x1.d95754p-1 0x1.c7d712p-1 0x1.b4061p-1 0x1.9e6026p-1 0x1.7b729ep-1 "
    "0x1.496f62p-1 0x1.18bd88p-1 0x1.d7fcecp-2 0x1.60c7fp-2 0x1.cc5bbep-3 0x1.272ac4p-3 0x1.7016a8p-4 -0x1.5c93aep-5 -0x1.067fd8p-6 "
    "-0x1.839788p-8 -0x1.1d0b56p-9 -0x1.0a3446p-11 -0x1.18a4c6p-14 -0x1.33986p-17 -0x1.3fa76p-20 -0x1.26c75cp-24 0 0 0 -0x1.1e17a8p-4 "
    "-0x1.5ca4a2p-4 -0x1.9b8b64p-4 -0x1.d69c34p-4 -0x1.18813ap-3 -0x1.52b72ep-3 -0x1.8919b6p-3 -0x1.be36fap-3 -0x1.0421dp-2 "
    "-0x1.2df0a8p-2 -0x1.4fed36p-2 -0x1.69e218p-2 -0x1.8222d2p-2 -0x1.896f7ep-2 -0x1.795accp-2 -0x1.5a8aa2p-2 -0x1.1d9fp-2 "
    "-0x1.9554b6p-3 -0x1.1112p-3 -0x1.5f2904p-4 0x1.bc3b08p-6 0x1.584e38p-7 0x1.00d43p-8 0x1.7b29fcp-10 0x1.633a96p-12 0x1.762fa4p-15 "
    "0x1.9a6948p-18 0x1.a998e4p-21 0x1.1ec12cp-24 0 0 -0x1.55553ep-2 -0x1.4d6f48p-2 -0x1.4c0622p-2 -0x1.488ca4p-2 -0x1.43d05ep-2 "
    "-0x1.3b7c4p-2 -0x1.2e6c5ap-2 -0x1.1ff132p-2 -0x1.0fc8a6p-2 -0x1.e81e8ep-3 -0x1.979702p-3 -0x1.4293fp-3 -0x1.d909e2p-4 -0x1.c40bep-5 "
    "0x1.eaa8ep-7 0x1.09c284p-4 0x1.84734cp-4 0x1.c69d68p-4 0x1.96de22p-4 0x1.3479fp-4 0x1.a8a0fp-5 -0x1.962f66p-7 -0x1.50292ep-8 "
    "-0x1.008c7p-9 -0x1.7ddca8p-11 -0x1.735616p-13 -0x1.88425cp-16 -0x1.ae583ep-19 -0x1.be3abp-22 -0x1.0a9b92p-23 0 0 0 0x1.f0a654p-5 "
    "0x1.2439f8p-4 0x1.327e06p-4 0x1.6458cep-4 0x1.691e5p-4 0x1.ab5512p-4 0x1.ef1b7ap-4 0x1.126ea4p-3 0x1.3391fp-3 0x1.507964p-3 "
    "0x1.5c62eap-3 0x1.5867c6p-3 0x1.3a83a4p-3 0x1.e7e95ep-4 0x1.448f1ep-4 0x1.625218p-5 0x1.ccd7ccp-9 -0x1.5c2efcp-6 -0x1.9be5fap-6 "
    "-0x1.55c6dap-6 0x1.0481cp-8 0x1.f6279cp-10 0x1.945ed4p-11 0x1.3338ccp-12 0x1.1faeacp-14 0x1.38adfap-17 0x1.52d712p-20 "
    "0x1.6e91b6p-23 0x1.9c3142p-25 0 0 0x1.107864p-3 -0x1.bbe578p+3 0x1.04d98ep+3 0x1.d178b4p+3 0x1.316c54p+3 0x1.578c04p+0 "
    "-0x1.939626p-2 -0x1.47e814p+0 -0x1.b4e2cap-2 0x1.762b06p-5 -0x1.5fc1p-5 0x1.af80dep-7 0x1.4c012cp-8 -0x1.50ec08p-5 -0x1.0cad12p-4 "
    "-0x1.f4fb92p-5 -0x1.ba1126p-5 -0x1.070cd4p-5 -0x1.392a18p-7 0x1.699a6cp-10 0x1.2dccfap-8"
)
_ERFCX = (
    "0x1.1fa6dep+1 0x1.5f6406p+1 0x1.a1259ap+1 0x1.dfbd28p+1 0x1.206a2cp+2 0x1.6122fap+2 0x1.a01b86p+2 0x1.dfc8f4p+2 0x1.205922p+3 "
    "0x1.4249cap+3 0 0x1.007dd4p-5 0x1.21bda6p-4 0x1.5ee0f4p-4 0x1.9feb08p-4 0x1.e070b8p-4 0x1.1fdb4cp-3 0x1.60995ap-3 0x1.a0f27cp-3 "
    "0x1.de32ap-3 0x1.1fe08ap-2 0x1.6089ap-2 0x1.9ef5ecp-2 0x1.df73cp-2 0x1.20e94ep-1 0x1.5fa82ep-1 0x1.a0f90ap-1 0x1.e1800ap-1 "
    "0x1.205294p+0 0x1.60125ap+0 0x1.a26bf8p+0 0x1.e1b866p+0 0x1.d9c298p-3 0x1.8d3cc4p-3 0x1.53ca72p-3 0x1.2a51f4p-3 0x1.f50216p-4 "
    "0x1.9c4032p-4 0x1.5f5f0ap-4 0x1.3196a2p-4 0x1.fdd0ep-5 0x1.c8ac58p-5 0 0x1.ee66dp-1 0x1.d99088p-1 0x1.d209a4p-1 0x1.ca3cc6p-1 "
    "0x1.c2b3f8p-1 0x1.b7ef46p-1 0x1.a9f2c2p-1 0x1.9cbe7ap-1 0x1.90c7c8p-1 0x1.7edb16p-1 0x1.690ad6p-1 0x1.55dd04p-1 0x1.43c43ap-1 "
    "0x1.2b175cp-1 0x1.0ff15p-1 0x1.efc8d2p-2 0x1.c7170cp-2 0x1.94e34cp-2 0x1.5f7b6ep-2 0x1.341b58p-2 0x1.13162p-2 -0x1.6b2796p-4 "
    "-0x1.03cb22p-4 -0x1.80c3dap-5 -0x1.2af256p-5 -0x1.a9190cp-6 -0x1.21c24p-6 -0x1.a6acb6p-7 -0x1.408bfep-7 -0x1.bf365ep-8 "
    "-0x1.6740eep-8 0 -0x1.1162a6p+0 -0x1.febb8ap-1 -0x1.f1e294p-1 -0x1.e4ab42p-1 -0x1.d7ffeep-1 -0x1.c60f64p-1 -0x1.af0faep-1 "
    "-0x1.99abccp-1 -0x1.8691d8p-1 -0x1.6a7734p-1 -0x1.49226ap-1 -0x1.2ca9p-1 -0x1.128ba4p-1 -0x1.e0601ep-2 -0x1.9858ccp-2 "
    "-0x1.5bed32p-2 -0x1.2b7feap-2 -0x1.e6e266p-3 -0x1.796002p-3 -0x1.28914ap-3 -0x1.e0c194p-4 0x1.06d204p-5 0x1.451df4p-6 0x1.a4eac8p-7 "
    "0x1.235cbap-7 0x1.6159cep-8 0x1.917846p-9 0x1.f6ff64p-10 0x1.4d76a2p-10 0x1.860164p-11 0x1.194824p-11 0 0x1.dd482ap-1 0x1.b572fcp-1 "
    "0x1.a7637cp-1 0x1.990798p-1 0x1.8b575ap-1 0x1.781d5ap-1 0x1.5fbb94p-1 0x1.4956eap-1 0x1.3595bcp-1 0x1.18f4ep-1 0x1.ef7568p-2 "
    "0x1.b80d0cp-2 0x1.867058p-2 0x1.471dfp-2 0x1.076bb8p-2 0x1.a8ddb8p-3 0x1.5addp-3 0x1.056ad2p-3 0x1.6fef9ap-4 0x1.06f8c4p-4 "
    "0x1.87651ep-5 -0x1.69cb02p-7 -0x1.870fcap-8 -0x1.be29e2p-9 -0x1.14b968p-9 -0x1.2009ecp-10 -0x1.12457ep-11 -0x1.282cd2p-12 "
    "-0x1.5819fep-13 -0x1.5220ccp-14 -0x1.b5d4dep-15 0 -0x1.629c2p-1 -0x1.407f48p-1 -0x1.3361cep-1 -0x1.286964p-1 -0x1.1b5076p-1 "
    "-0x1.0b3c18p-1 -0x1.edafd6p-2 -0x1.c88decp-2 -0x1.a84218p-2 -0x1.79ff62p-2 -0x1.45372cp-2 -0x1.19fdc4p-2 -0x1.e8503p-3 "
    "-0x1.8a65e2p-3 -0x1.2f3cc4p-3 -0x1.d265d6p-4 -0x1.6bae98p-4 -0x1.009e2ap-4 -0x1.4ba5e6p-5 -0x1.b38198p-6 -0x1.2c0248p-6 "
    "0x1.dc680ap-9 0x1.c5d37cp-10 0x1.cb4a3ep-11 0x1.007162p-11 0x1.cd19b2p-13 0x1.71c3fp-14 0x1.594446p-15 0x1.6046cep-16 "
    "0x1.238c7cp-17 0x1.39d622p-18 0 0x1.d39ebp-2 -0x1.468df4p-1 0x1.08f21ep-2 -0x1.fdcb9ep-4 0x1.0840bcp-2 0x1.4aeec4p-2 0x1.44c8eap-2 "
    "0x1.2766bcp-2 0x1.f0197p-3 0x1.c0b9fp-3 0x1.8196e2p-3 0x1.441d76p-3 0x1.1b9e4p-3 0x1.add3cep-4 0x1.3d9ff6p-4 0x1.d606ecp-5 "
    "0x1.5f8b54p-5 0x1.d3b582p-6 0x1.17bdfp-6 0x1.540d68p-7 0x1.b3ff1p-8 -0x1.30cb0ep-10 -0x1.006cbcp-11 -0x1.cc5feep-13 -0x1.d4646ap-14 "
    "-0x1.704398p-15 -0x1.f208ap-17 -0x1.91d52p-18 -0x1.682faep-19 -0x1.fda19cp-21 -0x1.66afdp-17 0 -0x1.6b60f4p-3 0x1.3983b6p+4 "
    "-0x1.47216ep+3 0x1.a727b2p+4 -0x1.7197cap+3 -0x1.a8ae14p+0 -0x1.3785bep+0 -0x1.0fa3d2p+0 -0x1.2551bep-1 -0x1.9f606p-4 -0x1.09e89p-5 "
    "-0x1.728fd4p-4 -0x1.8c3124p-4 -0x1.a9a724p-5 -0x1.2f0106p-5 -0x1.ea399cp-6 -0x1.672a1p-6 -0x1.8f4852p-7 -0x1.be3bap-8 "
    "-0x1.fd624ap-9 -0x1.359592p-9 0x1.710a44p-12 0x1.142e8ap-13 0x1.d05c6p-15 0x1.c54c8ep-16 0x1.1aef7ap-17 0x1.4a5982p-19 "
    "0x1.cced3ep-21 0x1.6c4342p-22 0x1.b0d514p-24 0x1.e025d6p-15 0 -0x1.5094fcp-1 0x1.5d3f68p+13 0x1.572828p+10 0x1.2aba08p+12 "
    "0x1.a5de06p+9 0x1.2b710ap+4 -0x1.3bca74p+5 -0x1.0d4f2cp+5 0x1.058f24p+5 0x1.171d7ap+1 -0x1.ba8d8p-2 0x1.2c3b98p-1 -0x1.17cc38p+1 "
    "0x1.9ee21ap-4 0x1.af446cp-5 0x1.e606f6p-8 0x1.4893d4p-8 0x1.3bcb72p-8 0x1.58cb3p-9 0x1.5da618p-10 0x1.00376ep-10"
)

TANH = Pieces("tanh_pieces", 0x3D7FFFFF, 9.5, tuple(_TANH.split()))
ERFCX = Pieces("erfcx_pieces", 0x3D7FFFFF, 10.1, tuple(_ERFCX.split()))
"""exp(x^2) erfc(x)"""

__all__ = ["ERFCX", "TANH", "Pieces", "in_pieces"]
