"""Request every page of the admin, for benchmarks/admin.py. The arguments are the account and the number of requests.

Prints the number of results and pages, and for each URL the median in ms and the number of queries.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import django

django.setup()

from django.conf import settings  # noqa: E402
from django.contrib import admin  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402
from django.urls import reverse  # noqa: E402

import config.urls  # noqa: E402, F401  (finds the admin's pages)
from accounts.models import User  # noqa: E402
from checks.results.models import CheckResult  # noqa: E402
from tests.admin.addresses import pages_of  # noqa: E402

_LAST_PAGE = 1_000  # with more rows than this, the last page of a list is requested too


def addresses() -> list[str]:
    found = [reverse("admin:index"), reverse("system_health")]
    for model, page in admin.site._registry.items():
        if not model._default_manager.exists():
            raise SystemExit(f"{model._meta.label} has no rows")
        found += pages_of(model, page)
        if model._default_manager.count() > _LAST_PAGE:
            listing = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
            found.append(f"{listing}?p=20")
    return found


def main(email: str, times: int) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    client.force_login(User.objects.get(email=email), backend="django.contrib.auth.backends.ModelBackend")

    def get(address: str) -> float:
        start = time.perf_counter()
        answer = client.get(address)
        if answer.status_code != 200:
            raise SystemExit(f"{address}: {answer.status_code} {answer.headers.get('Location', '')}")
        return (time.perf_counter() - start) * 1000

    wanted = addresses()
    print(json.dumps({"results": CheckResult.objects.count(), "pages": len(wanted)}))
    found = {}
    for address in wanted:
        get(address)
        with CaptureQueriesContext(connection) as queries:
            get(address)
        count = len(queries)  # before the next request resets the count
        found[address] = (round(statistics.median(get(address) for _ in range(times)), 1), count)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
