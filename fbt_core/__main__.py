"""The command line: ``python -m fbt_core COMMAND``."""

from __future__ import annotations

import typer

from fbt_core.commands.adapt import adapt
from fbt_core.commands.arguments import JsonCommand
from fbt_core.commands.claims import claims
from fbt_core.commands.collapse import collapse
from fbt_core.commands.curvature import curvature
from fbt_core.commands.geodesic import geodesic
from fbt_core.commands.inspect import inspect
from fbt_core.commands.maps import maps
from fbt_core.commands.ranks import ranks
from fbt_core.commands.trace import trace
from fbt_core.commands.train import train

app = typer.Typer(help="The geometry inside a transformer.", no_args_is_help=True, pretty_exceptions_enable=False)
for command in (trace, maps, train, adapt, inspect, curvature, geodesic, claims, collapse, ranks):
    app.command(cls=JsonCommand)(command)

if __name__ == "__main__":
    app(prog_name="python -m fbt_core")
