//! Frames as they go over the wire: a header of eight bytes, and what follows it.
//!
//! ```text
//! version u8 | command u8 | length u16 | stream id u32 | length bytes       little-endian
//! ```

use super::{MuxVersion, error::ProtocolError};

/// Bytes of a frame's header.
pub(super) const HEADER_LEN: usize = 8;
/// Bytes that follow the header of an UPD: how many were consumed, and the window.
pub(super) const UPD_LEN: usize = 8;
/// What the peer's window counts as in version 2 until it says one.
pub(super) const INITIAL_WINDOW: u32 = 262_144;

/// What a frame does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// Opens a stream.
    Syn = 0,
    /// The sender writes nothing more to the stream.
    Fin = 1,
    /// Bytes of a stream.
    Psh = 2,
    /// Nothing: it shows that the sender lives.
    Nop = 3,
    /// How much of a stream was read, and its window. Version 2 only.
    Upd = 4,
}

/// A frame's header, without the version, which is that of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) command: Command,
    pub(super) len: u16,
    pub(super) id: u32,
}

impl Header {
    pub(super) fn to_bytes(self, version: MuxVersion) -> [u8; HEADER_LEN] {
        let [len_0, len_1] = self.len.to_le_bytes();
        let [id_0, id_1, id_2, id_3] = self.id.to_le_bytes();
        [version.number(), self.command as u8, len_0, len_1, id_0, id_1, id_2, id_3]
    }

    /// What the bytes say.
    ///
    /// # Errors
    /// [`ProtocolError`], when they are no header of this version. A length where the command has no bytes is one: Go's older
    /// releases take those bytes for the next header, newer ones end the session as this does.
    pub(super) fn parse(bytes: [u8; HEADER_LEN], version: MuxVersion) -> Result<Self, ProtocolError> {
        let [number, command, len_0, len_1, id_0, id_1, id_2, id_3] = bytes;
        if number != version.number() {
            return Err(ProtocolError::Version(number));
        }
        let len = u16::from_le_bytes([len_0, len_1]);
        let (command, fits) = match command {
            0 => (Command::Syn, len == 0),
            1 => (Command::Fin, len == 0),
            2 => (Command::Psh, true),
            3 => (Command::Nop, len == 0),
            4 if version == MuxVersion::V2 => (Command::Upd, usize::from(len) == UPD_LEN),
            other => return Err(ProtocolError::Command(other)),
        };
        if !fits {
            return Err(ProtocolError::Length { command: command as u8, len });
        }
        Ok(Self { command, len, id: u32::from_le_bytes([id_0, id_1, id_2, id_3]) })
    }
}

/// What an UPD says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Update {
    /// Bytes of the stream that were read since its beginning, modulo 2^32.
    pub(super) consumed: u32,
    /// Bytes that may be written beyond them.
    pub(super) window: u32,
}

impl Update {
    pub(super) fn to_bytes(self) -> [u8; UPD_LEN] {
        let mut bytes = [0; UPD_LEN];
        bytes[..4].copy_from_slice(&self.consumed.to_le_bytes());
        bytes[4..].copy_from_slice(&self.window.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: [u8; UPD_LEN]) -> Self {
        let [c_0, c_1, c_2, c_3, w_0, w_1, w_2, w_3] = bytes;
        Self {
            consumed: u32::from_le_bytes([c_0, c_1, c_2, c_3]),
            window: u32::from_le_bytes([w_0, w_1, w_2, w_3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_gos_smux() {
        // As Go's smux 1.5.16 writes them.
        for (bytes, version, command, len, id) in [
            ([1, 0, 0, 0, 3, 0, 0, 0], MuxVersion::V1, Command::Syn, 0, 3),
            ([1, 1, 0, 0, 2, 0, 0, 0], MuxVersion::V1, Command::Fin, 0, 2),
            ([2, 2, 0, 0x80, 5, 1, 0, 0], MuxVersion::V2, Command::Psh, 32_768, 261),
            ([2, 3, 0, 0, 0, 0, 0, 0], MuxVersion::V2, Command::Nop, 0, 0),
            ([2, 4, 8, 0, 0xff, 0xff, 0xff, 0xff], MuxVersion::V2, Command::Upd, 8, u32::MAX),
        ] {
            let header = Header { command, len, id };
            assert_eq!(header.to_bytes(version), bytes);
            assert_eq!(Header::parse(bytes, version), Ok(header));
        }
        let update = Update { consumed: 0x0403_0201, window: 65_536 };
        assert_eq!(update.to_bytes(), [1, 2, 3, 4, 0, 0, 1, 0]);
        assert_eq!(Update::parse(update.to_bytes()), update);
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let parse = |bytes| Header::parse(bytes, MuxVersion::V1);
        assert_eq!(parse([2, 0, 0, 0, 3, 0, 0, 0]), Err(ProtocolError::Version(2)));
        assert_eq!(parse([1, 4, 8, 0, 3, 0, 0, 0]), Err(ProtocolError::Command(4)));
        assert_eq!(parse([1, 5, 0, 0, 3, 0, 0, 0]), Err(ProtocolError::Command(5)));
        for command in [0, 1, 3] {
            let error = ProtocolError::Length { command, len: 256 };
            assert_eq!(parse([1, command, 0, 1, 3, 0, 0, 0]), Err(error));
        }
        let error = ProtocolError::Length { command: 4, len: 7 };
        assert_eq!(Header::parse([2, 4, 7, 0, 3, 0, 0, 0], MuxVersion::V2), Err(error));
    }
}
