"""Section 6, "Events".

"Webhooks or any outbound event delivery: not shown." "The only event-like behaviours described are incident opening
and alert suppression, covered in section 3": see the docstring of test_section_3_states.py. This
section needs no tests of its own.
"""
