//! backend/host
