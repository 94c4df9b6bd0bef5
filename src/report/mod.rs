//! Consumers of events: terminal, JUnit, JSON, CSV, table.
