"""Local functions, as torch.onnx.export and model-local exporters write them."""

from checks import HEADER, check_pass, check_unchanged

from lucid_fx.passes.inline_functions import InlineFunctions

MINE = '<ir_version: 10, opset_import: ["" : 20, "mine" : 1]>'


def test_a_call_becomes_the_body() -> None:
    check_pass(
        f"""{MINE} g (float[2] x) => (float[2] y) {{ y = mine.twice (x) }}
        <domain: "mine", opset_import: ["" : 20]>
        twice (a) => (b) {{ t = Relu (a)  b = Add (t, t) }}""",
        InlineFunctions(),
        f"{HEADER} g (float[2] x) => (float[2] y) {{ t = Relu (x)  y = Add (t, t) }}",
        exact=True,
    )


def test_two_calls_get_names_of_their_own() -> None:
    check_pass(
        f"""{MINE} g (float[2] x) => (float[2] y) {{ m = mine.twice (x)  y = mine.twice (m) }}
        <domain: "mine", opset_import: ["" : 20]>
        twice (a) => (b) {{ t = Relu (a)  b = Add (t, t) }}""",
        InlineFunctions(),
        f"""{HEADER} g (float[2] x) => (float[2] y) {{
            t = Relu (x)  m = Add (t, t)  t_2 = Relu (m)  y = Add (t_2, t_2) }}""",
        exact=True,
    )


def test_a_function_that_calls_another() -> None:
    check_pass(
        f"""{MINE} g (float[2] x) => (float[2] y) {{ y = mine.outer (x) }}
        <domain: "mine", opset_import: ["" : 20, "mine" : 1]>
        outer (a) => (b) {{ t = mine.inner (a)  b = Neg (t) }}
        <domain: "mine", opset_import: ["" : 20]>
        inner (c) => (d) {{ d = Relu (c) }}""",
        InlineFunctions(),
        f"{HEADER} g (float[2] x) => (float[2] y) {{ t = Relu (x)  y = Neg (t) }}",
        exact=True,
    )


def test_a_model_without_functions_stays() -> None:
    check_unchanged("g (float[2] x) => (float[2] y) { y = Relu (x) }", InlineFunctions())
