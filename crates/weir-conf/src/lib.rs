//! altq.conf (text) to a typed plan with located diagnostics, and from the plan to a tree of disciplines.
