"""How the documentation's examples are read and compared."""

import pytest

from tests.support.docpages import Block, Example, blocks_of, check_data, difference, examples_of, shape

PAGE = """
Text.

<!-- not run: it needs a GPU -->
```sh
nvidia-smi
```

1. A step:

   ```sh
   echo a
   ```
<!-- exits 8 -->

```console
$ curl 'a
b'
{"x": 1}
```
"""


def block(text: str, language: str = "sh") -> Block:
    return Block("page.md", 1, language, text)


def test_blocks_come_with_their_marks_and_without_their_indent() -> None:
    first, second, third = blocks_of("page.md", PAGE)

    assert (first.not_run, first.line, first.text) == ("it needs a GPU", 5, "nvidia-smi\n")
    assert (second.not_run, second.mark, second.text) == (None, "", "echo a\n")
    assert (third.mark, third.language) == ("exits 8", "console")


def test_comments_under_a_command_are_its_output_and_others_are_not() -> None:
    first, second = examples_of(block("# first\n\nls\n# a\n# b\n\n# then\npwd  # where\n"))

    assert first == Example("# first\n\nls", "a\nb")
    assert second == Example("\n# then\npwd  # where", "")


def test_comments_of_a_file_that_is_written_are_no_output() -> None:
    (example,) = examples_of(block("cat > x <<'EOF'\n# a setting\nEOF\n"))

    assert example.shown == ""


def test_a_console_block_has_commands_over_several_lines() -> None:
    first, second = examples_of(block("$ curl \\\n  x 'a\nb'\nanswer\n$ ls\n", "console"))

    assert first == Example("curl \\\n  x 'a\nb'", "answer")
    assert second == Example("ls", "")


@pytest.mark.parametrize(
    ("shown", "output"),
    [
        ("job_01a2… succeeded", "job_0123456789abcdef0123456789abcdef succeeded"),
        ("vectors.npy: float32 [2, 384]", "vectors.npy: float32 [2, 16]\n"),
        ('202 {"id": "job_01a2…", "status": "queued", …}', '{"id":"job_0123456789abcdef","status":"queued","a":1}'),
        ('{"values": [[-0.1246, …]]}', '{"values":[[0.5,1e-3,2]]}'),
        ("a\nc", "a\nb\nc\n"),
        ("…", ""),
    ],
)
def test_what_differs_from_run_to_run_is_no_difference(shown: str, output: str) -> None:
    assert difference(shown, output) is None


@pytest.mark.parametrize(
    ("shown", "output"),
    [("job_01a2… succeeded", "job_0123456789abcdef failed"), ("c\na", "a\nb\nc"), ('{"a": 1}', '{"b":1}'), ("x", "")],
)
def test_what_is_shown_and_does_not_come_out_is_found(shown: str, output: str) -> None:
    assert difference(shown, output) is not None


def test_shapes_have_no_numbers_and_no_space() -> None:
    assert shape("took 12.5 ms, 1,000 jobs") == "tookNms,Njobs"


def test_data_must_be_of_its_language() -> None:
    check_data(block('{"a": [1, …], "b": "…"}', "json"))
    check_data(block("drawing", ""))
    check_data(block("[Service]\nEnvironment=A=1\nEnvironment=B=100%\n", "ini"))
    with pytest.raises(ValueError, match=r"page\.md:1"):
        check_data(block("{a}", "json"))
    with pytest.raises(ValueError, match="not known"):
        check_data(block("x", "cobol"))
