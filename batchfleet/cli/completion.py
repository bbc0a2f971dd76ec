"""`batchfleet completion`: the script by which a shell completes commands, options, models and job ids."""

import click

from batchfleet.cli.options import as_json_option, print_json

_HOW = {
    "bash": 'eval "$(batchfleet completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(batchfleet completion zsh)"    # in ~/.zshrc',
    "fish": "batchfleet completion fish > ~/.config/fish/completions/batchfleet.fish",
}


@click.command(epilog="\b\n" + "\n".join(_HOW.values()))
@click.argument("shell", type=click.Choice(tuple(_HOW)))
@as_json_option
def completion(shell: str, as_json: bool) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - not for `--help`

    from batchfleet.cli.main import cli  # noqa: PLC0415 - it imports this package's commands

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click knows the three
    # Not `source()`: it starts a bash to ask for its version, and scripts are made where none may be.
    script = kind.source_template % kind(cli, {}, "batchfleet", "_BATCHFLEET_COMPLETE").source_vars()
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        print(script)
