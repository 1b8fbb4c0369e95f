from __future__ import annotations

from datetime import datetime

from accounts.export import Sections, columns_of, serialized
from accounts.models import User
from connectors.models import Connector, Import
from connectors.serializers import ConnectorSerializer
from projects.access import owned


def sections(user: User, *, now: datetime) -> Sections:
    return {
        "connectors": serialized(owned(Connector.objects.all(), user), ConnectorSerializer),
        "imports": columns_of(
            owned(Import.objects.all(), user),
            provider="provider",
            external_ref="external_ref",
            monitor_id="monitor__public_id",
        ),
    }
