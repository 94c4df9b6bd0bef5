//! Where events go.

use crate::run::event::{Consumer, Event};

/// Hands events to consumers, and parts with one that fails.
pub(super) struct Hub {
    pub(super) consumers: Vec<Box<dyn Consumer>>,
    /// Why those were parted with.
    pub(super) lost: Vec<String>,
}

impl Hub {
    /// Tells all of it.
    pub(super) fn send(&mut self, event: &Event) {
        self.consumers.retain_mut(|consumer| match consumer.take(event) {
            Ok(()) => true,
            Err(error) => {
                self.lost.push(format!("{error:#}"));
                false
            }
        });
    }
}
