"""How long results and what is made of them are kept."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.conf import settings

from checks.partitions import RESULTS, delete_strays, drop, make

logger = logging.getLogger(__name__)


def keep_partitions(now: datetime) -> None:
    """Make the partitions of the coming days, and drop those whose time is up. Repeating it changes nothing."""
    for name in make(RESULTS, RESULTS.wanted(now=now)):
        logger.info("made %s", name)
    before = now - timedelta(days=settings.RESULTS_KEPT_DAYS)
    for name in drop(RESULTS, before=before):
        logger.info("dropped %s", name)
    if strays := delete_strays(RESULTS, before=before):
        logger.info("deleted %d old rows of %s", strays, RESULTS.default)
