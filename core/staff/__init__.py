"""The base of the admin pages of all apps. Only `config.urls` loads it: workers do not need it."""

from core.staff.acting import act, ask
from core.staff.filters import AutocompleteFilter
from core.staff.listing import search
from core.staff.pages import ReadOnlyAdmin, Section, StaffAdmin, list_of

__all__ = ["AutocompleteFilter", "ReadOnlyAdmin", "Section", "StaffAdmin", "act", "ask", "list_of", "search"]
