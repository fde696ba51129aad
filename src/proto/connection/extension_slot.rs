//! Where a connection keeps its extension, so that asking it costs nothing while it stays as it is.
//!
//! A connection asks its extension before each transmission whether it has something to send, which it hardly ever has, and small
//! writes transmit often. Only a change of the extension can change the answer. So the answer "nothing" is kept until somebody
//! borrows the extension to change it: [`DerefMut`] forgets the answer, so that no change is missed.

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};

use crate::proto::extension::Extension;

/// The extension of a connection, if it has one.
#[derive(Debug)]
pub(super) struct ExtensionSlot {
    extension: Option<Box<Extension>>,
    /// It had nothing to send, and has not changed since.
    idle: bool,
}

impl ExtensionSlot {
    /// Of a connection without extensions.
    pub(super) const fn empty() -> Self {
        Self { extension: None, idle: true }
    }

    pub(super) fn fill(&mut self, extension: Extension) {
        *self = Self { extension: Some(Box::new(extension)), idle: false };
    }

    /// Asks the extension whether it has something to send, unless the answer is known.
    #[inline]
    pub(super) fn look(&mut self) {
        if !self.idle {
            self.idle = self
                .extension
                .as_deref()
                .is_none_or(|extension| !extension.is_urgent() && !extension.has_appendable());
        }
    }

    /// Whether it is known to have nothing to send.
    #[inline]
    pub(super) const fn is_idle(&self) -> bool {
        self.idle
    }
}

impl Deref for ExtensionSlot {
    type Target = Option<Box<Extension>>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.extension
    }
}

impl DerefMut for ExtensionSlot {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.idle = false;
        &mut self.extension
    }
}
