"""Locations, their agents and join tokens, and the operation with which agents join."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from core.api.viewsets import ServiceViewSet, operation
from core.errors import (
    AgentOutdated,
    Forbidden,
    JoinTokenInvalid,
    LimitReached,
    LocationInUse,
    LocationLimit,
    NoAgents,
)
from core.throttles import JoinThrottle
from locations import selectors, services
from locations.models import Agent, Location
from locations.serializers import (
    AgentSerializer,
    JoinedSerializer,
    JoinSerializer,
    JoinTokenSerializer,
    LocationCreatedSerializer,
    LocationInputSerializer,
    LocationPatchSerializer,
    LocationSerializer,
)

MAX_JOIN_BYTES = 16 * 1024
"""Strangers send it."""


class LocationViewSet(ServiceViewSet):
    noun = "location"
    lookup_url_kwarg = "location_id"
    serializer_class = LocationSerializer
    has_etag = True

    def get_object(self, location_id: str) -> Location:
        return services.get_location(self.caller, location_id, now=self.now)

    @operation()
    def list(self) -> QuerySet[Location]:
        """List locations."""
        return services.list_locations(self.caller, now=self.now)

    @operation(
        body=LocationInputSerializer,
        answer=LocationCreatedSerializer,
        errors=(LocationLimit, Forbidden),
        session_only=True,
    )
    def create(self, data: dict[str, Any]) -> Location:
        """Create a private location.

        With a project it is for the monitors of the project, otherwise for those of the account. Only this response
        contains the join token of its first agent.
        """
        location, self.secret = services.create_location(self.caller, data, now=self.now)
        return location

    @operation()
    def retrieve(self, location_id: str) -> Location:
        """Read a location."""
        return self.get_object(location_id)

    @operation(body=LocationPatchSerializer, errors=(Forbidden,), session_only=True)
    def partial_update(self, location_id: str, data: dict[str, Any]) -> Location:
        """Change a location."""
        return services.update_location(self.caller, location_id, data, now=self.now, if_match=self.if_match)

    @operation(errors=(Forbidden, LocationInUse), session_only=True)
    def destroy(self, location_id: str) -> None:
        """Delete a location.

        Revokes its agents. Refused with 409 `location_in_use` while monitors name it.
        """
        services.delete_location(self.caller, location_id, if_match=self.if_match)

    @operation(
        "join-token",
        id="issue_join_token",
        answer=JoinTokenSerializer,
        errors=(Forbidden, NoAgents),
        session_only=True,
    )
    def join_token(self, location_id: str) -> Any:
        """Issue a join token.

        It is valid for one hour and one agent.
        """
        self.secret = services.issue_join_token(self.caller, location_id, now=self.now)
        return self.secret


class AgentViewSet(ServiceViewSet):
    noun = "agent"
    lookup_url_kwarg = "agent_id"
    serializer_class = AgentSerializer

    def get_parent(self, location_id: str) -> Location:
        return selectors.get_usable(self.caller, location_id)

    @operation()
    def list(self, location_id: str) -> QuerySet[Agent]:
        """List the agents of a location."""
        return services.list_agents(self.caller, location_id)

    @operation(id="revoke_agent", errors=(Forbidden,), session_only=True)
    def destroy(self, location_id: str, agent_id: str) -> None:
        """Revoke an agent.

        Its credential is invalid at once.
        """
        services.revoke_agent(self.caller, location_id, agent_id)


class JoinViewSet(ServiceViewSet):
    noun = "joining"
    serializer_class = JoinedSerializer

    @operation(
        "join",
        detail=False,
        id="join_location",
        body=JoinSerializer,
        max_bytes=MAX_JOIN_BYTES,
        status=201,
        errors=(LimitReached, JoinTokenInvalid, AgentOutdated),
        throttles=(JoinThrottle,),
        is_public=True,
    )
    def join(self, data: dict[str, Any]) -> Agent:
        """Join a location as an agent.

        With a join token, and without any other credential. Only this response contains the agent's credential.
        """
        agent, self.secret = services.join(**data, now=self.now)
        return agent
