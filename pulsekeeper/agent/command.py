"""Make the checks of a location, for a server on another machine."""

from __future__ import annotations

import logging
import os
import resource
import socket
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from checks.own_network import OwnNetwork
from checks.probes.engine import ProbeEngine
from checks.probes.resolver import Resolver
from core.cli import Command, Output, UsageError
from core.egress import EgressGuard, parse_networks, trusted_file
from core.hosts import PUBLIC_NAME_SERVERS, hosts_with_ports, name_servers
from core.text import one_line
from pulsekeeper.agent.agent import Agent
from pulsekeeper.agent.server import Server, checked_server
from pulsekeeper.agent.state import STATE, State, digest, join, load, state_path

T = TypeVar("T")

URL, TOKEN = "PULSEKEEPER_URL", "PULSEKEEPER_JOIN_TOKEN"
_MAX_TOKEN = 100

logger = logging.getLogger(__name__)


class AgentCommand(Command):
    help = "Makes the checks of a location: leases them from a server, and sends it the results."
    epilog = f"""\
Other users of the machine see a token in the list of processes, but not in the environment or on standard input:

  {{prog}} --server https://pulsekeeper.example.com --join -
  {{prog}} --allow 10.0.0.0/8

The first start needs a join token of the location, and stores a credential. Later starts need neither --server nor
--join; a token that was used already is ignored, and another one joins its location. --dns, --allow and --connectivity
have the variables of a server as defaults: DNS_SERVERS, ALLOWED_PRIVATE_NETWORKS, CONNECTIVITY_TARGETS.
{TOKEN} in the environment replaces --join.

exit codes:
  0  ended by SIGTERM or SIGINT
  2  usage error, the join token is refused, or the state file cannot be used
  3  the agent was revoked: join again with a new token
  4  the server cannot be reached to join
  5  the server does not accept this version of the agent
"""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--server", metavar="URL", help=f"the address of Pulsekeeper; default: ${URL}")
        parser.add_argument("--join", metavar="TOKEN", help="a join token of the location; - reads it from stdin")
        parser.add_argument("--name", help="the agent's name for people; default: the machine's")
        parser.add_argument("--state", metavar="FILE", help=f"where the credential is stored; default: ${STATE}")
        parser.add_argument(
            "--allow", action="append", metavar="CIDR", help="private network that checks may reach; repeatable"
        )
        parser.add_argument("--dns", metavar="LIST", help="name servers to ask, instead of the machine's")
        parser.add_argument(
            "--connectivity",
            metavar="LIST",
            help="host:port of servers that answer while the network works; '' to ask none",
        )

    def explain(self, message: str) -> str:
        # What is mistyped may be a token.
        return "unrecognized arguments" if message.startswith("unrecognized arguments") else message

    def run(self, options: Mapping[str, Any], *, out: Output, err: Output) -> int:
        logging.basicConfig(stream=sys.stderr, format="pulsekeeper agent: %(message)s", level=logging.INFO)
        allow = None if options["allow"] is None else ",".join(options["allow"])
        allowed = _parsed("--allow", allow, parse_networks, "ALLOWED_PRIVATE_NETWORKS")
        resolver = Resolver(_parsed("--dns", options["dns"], name_servers, "DNS_SERVERS"))
        asked = _parsed(
            "--connectivity", options["connectivity"], hosts_with_ports, "CONNECTIVITY_TARGETS", PUBLIC_NAME_SERVERS
        )
        ca_file = trusted_file(os.environ.get("SSL_CERT_FILE", ""))
        state = _state(options, ca_file)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        logger.info("serving location %s of %s", one_line(state.location_name), state.server)

        def connect(is_over: Callable[[], bool]) -> Server:
            return Server(state.server, ca_file=ca_file, credential=state.credential, is_over=is_over)

        engine = ProbeEngine(EgressGuard(allowed), ca_file, resolver=resolver)
        Agent(engine, OwnNetwork(asked), allowed, connect=connect).run()
        return 0


def _parsed(option: str, text: str | None, parse: Callable[[str], T], variable: str, default: str = "") -> T:
    """Return the parsed value of an option, or else of the variable. Raises UsageError."""
    try:
        return parse(os.environ.get(variable, default) if text is None else text)
    except ValueError as error:
        raise UsageError(f"{variable if text is None else option}: {error}") from None


def _state(options: Mapping[str, Any], ca_file: str | None) -> State:
    """Return whose agent this is, after joining if a token asks for it. Raises CommandFailed."""
    path = state_path(options["state"])
    token = _token(options["join"])
    state = load(path)
    given = options["server"] or os.environ.get(URL)
    server = None if not given else checked_server(given)
    if state is not None and server in (None, state.server) and (token is None or digest(token) == state.joined_with):
        return state
    if token is None:
        why = f"this is the first start ({path} does not exist)" if state is None else f"it has joined {state.server}"
        raise UsageError(f"{why}: give --join and a join token of the location")
    if server is None and state is None:
        raise UsageError(f"give --server, or {URL} in the environment")
    address = server or state.server  # type: ignore[union-attr]
    joined = join(path, Server(address, ca_file=ca_file), token=token, name=options["name"] or socket.gethostname())
    logger.info("joined as %s", one_line(joined.agent_id))
    return joined


def _token(option: str | None) -> str | None:
    """Return the join token that was given, if any. Raises UsageError."""
    token = (sys.stdin.readline() if option == "-" else option or os.environ.get(TOKEN, "")).strip()
    if option is None and not token:
        return None
    if not (token and token.isascii() and token.isprintable() and len(token) <= _MAX_TOKEN):
        raise UsageError("--join is not a join token")
    return token
