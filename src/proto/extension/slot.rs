//! Where a connection keeps its extension, so that it costs nothing while it is at rest.
//!
//! A connection asks its extension with each packet and with each transmission whether there is something to send, to wait for, or to
//! conclude. There hardly ever is, and to find that out means to look at memory that nothing else needs. Only a change of the extension
//! can change the answer. So the answer "nothing" is kept until somebody borrows the extension to change it: [`DerefMut`] forgets the
//! answer, so that no change is missed.

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};

use super::Extension;

/// The extension of a connection, if it has one.
#[derive(Debug)]
pub(in crate::proto) struct ExtensionSlot {
    extension: Option<Box<Extension>>,
    /// It was [at rest](Extension::is_at_rest), and has not changed since.
    at_rest: bool,
}

impl ExtensionSlot {
    /// Of a connection without extensions.
    pub(in crate::proto) const fn empty() -> Self {
        Self { extension: None, at_rest: true }
    }

    pub(in crate::proto) fn fill(&mut self, extension: Extension) {
        *self = Self { extension: Some(Box::new(extension)), at_rest: false };
    }

    /// Gives back the memory of what is over.
    pub(in crate::proto) fn trim(&mut self) {
        // It changes nothing of what there is to be done.
        if let Some(extension) = &mut self.extension {
            extension.trim();
        }
    }

    /// Asks the extension whether it is at rest, unless the answer is known.
    #[inline]
    pub(in crate::proto) fn look(&mut self) {
        if !self.at_rest {
            self.at_rest = self.extension.as_deref().is_none_or(Extension::is_at_rest);
        }
    }

    /// Whether it is known to be at rest.
    #[inline]
    pub(in crate::proto) const fn is_at_rest(&self) -> bool {
        self.at_rest
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
        self.at_rest = false;
        &mut self.extension
    }
}
