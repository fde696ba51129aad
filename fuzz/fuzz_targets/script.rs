//! The bytes of a fuzzer, read as a script of operations.

/// Reads the script; zeros behind its end.
pub struct Script<'a>(pub &'a [u8]);

#[allow(dead_code, reason = "not every target reads everything")]
impl Script<'_> {
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub fn word(&mut self) -> u32 {
        let low = u32::from(self.short());
        low | u32::from(self.short()) << 16
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }
}
