from __future__ import annotations

from datetime import datetime

from accounts.export import Sections, rows_of, serialized
from accounts.models import User
from connectors.models import Connector, Import
from connectors.serializers import ConnectorSerializer


def sections(user: User, *, now: datetime) -> Sections:
    imports = Import.objects.filter(user=user).select_related("monitor")
    return {
        "connectors": lambda: serialized(Connector.objects.filter(user=user), ConnectorSerializer),
        "imports": lambda: rows_of(
            imports,
            lambda row: {
                "provider": row.provider,
                "external_ref": row.external_ref,
                "monitor_id": row.monitor.public_id,
            },
        ),
    }
