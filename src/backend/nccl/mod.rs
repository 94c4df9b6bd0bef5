//! backend/nccl
