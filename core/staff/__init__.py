"""What the admin pages of all apps are made of. Loaded by `config.urls` alone: workers have no use for it."""

from core.staff.acting import act, ask
from core.staff.filters import AutocompleteFilter
from core.staff.listing import search
from core.staff.pages import ReadOnlyAdmin, Section, StaffAdmin, list_of

__all__ = ["AutocompleteFilter", "ReadOnlyAdmin", "Section", "StaffAdmin", "act", "ask", "list_of", "search"]
