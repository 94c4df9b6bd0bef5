//! Reference ranges of bandwidth, and how a result is judged by them.
