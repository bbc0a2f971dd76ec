"""A group of commands that, of a misspelt one, says which was probably meant."""

import difflib

import click


class SuggestingGroup(click.Group):
    """Adds a suggestion to click's "No such command"."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command that a command line names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message.rstrip('.')}; did you mean {near[0]}?", ctx) from None
