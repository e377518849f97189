//! The framing of the journal: `length u32 LE, crc32 u32 LE, payload`. Pure functions over bytes;
//! the journal, its recovery and the drain call them.
//!
//! A payload is JSON, so its bytes lie at 0x20 or above and a length field made of them would exceed
//! [`MAX_PAYLOAD_BYTES`]: no text of a user can imitate a frame, and [`resync`] is safe.

/// Bytes before a payload.
pub(crate) const FRAME_HEADER_BYTES: usize = 8;
/// The largest payload.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 64 << 20;

/// A buffer with the frame header, to which a payload of about so many bytes is appended.
pub(crate) fn begin(payload: usize) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(FRAME_HEADER_BYTES + payload);
    buffer.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    buffer
}

/// Fills in the header of a buffer that [`begin`] made. Returns false when the payload is too large.
pub(crate) fn finish(buffer: &mut [u8]) -> bool {
    let Some((header, payload)) = buffer.split_first_chunk_mut::<FRAME_HEADER_BYTES>() else {
        return false;
    };
    if payload.len() > MAX_PAYLOAD_BYTES {
        return false;
    }
    let Ok(length) = u32::try_from(payload.len()) else {
        return false;
    };
    let checksum = crc32fast::hash(payload);
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..].copy_from_slice(&checksum.to_le_bytes());
    true
}

/// What stands at the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A sound frame and its payload.
    Sound(&'a [u8]),
    /// The bytes end before the frame does.
    Short,
    /// The frame's length is impossible or its checksum does not match.
    Bad,
    /// There are no bytes.
    Nothing,
}

/// Reads the frame at the beginning of `bytes`.
pub(crate) fn read(bytes: &[u8]) -> Frame<'_> {
    if bytes.is_empty() {
        return Frame::Nothing;
    }
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Frame::Short;
    };
    let Some((checksum, rest)) = rest.split_first_chunk::<4>() else {
        return Frame::Short;
    };
    let length = u32::from_le_bytes(*length) as usize;
    // An empty payload has checksum 0, so that a run of zero bytes would otherwise look sound.
    if length == 0 || length > MAX_PAYLOAD_BYTES {
        return Frame::Bad;
    }
    let Some(payload) = rest.get(..length) else {
        return Frame::Short;
    };
    if crc32fast::hash(payload) == u32::from_le_bytes(*checksum) { Frame::Sound(payload) } else { Frame::Bad }
}

/// The offset of the next sound frame after the first byte, if there is one.
pub(crate) fn resync(bytes: &[u8]) -> Option<usize> {
    (1..bytes.len()).find(|start| {
        let candidate = &bytes[*start..];
        // The first byte of a payload is looked at first: the checksum is dear and seldom needed.
        candidate.get(FRAME_HEADER_BYTES) == Some(&b'{') && matches!(read(candidate), Frame::Sound(_))
    })
}

/// The size of a whole frame.
pub(crate) fn size(payload: &[u8]) -> u64 {
    (FRAME_HEADER_BYTES + payload.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut buffer = begin(payload.len());
        buffer.extend_from_slice(payload);
        assert!(finish(&mut buffer));
        buffer
    }

    #[test]
    fn a_frame_reads_back_and_any_cut_is_short() {
        let bytes = framed(b"{\"a\":1}");
        assert_eq!(read(&bytes), Frame::Sound(b"{\"a\":1}"));
        for cut in 1..bytes.len() {
            assert_eq!(read(&bytes[..cut]), Frame::Short, "cut at {cut}");
        }
        assert_eq!(read(&[]), Frame::Nothing);
    }

    #[test]
    fn zeros_are_bad_and_any_flipped_byte_is_noticed() {
        assert_eq!(read(&[0; 64]), Frame::Bad);
        let sound = framed(b"{\"text\":\"hello\"}");
        for position in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[position] ^= 0x41;
            assert!(!matches!(read(&bytes), Frame::Sound(_)), "flip at {position}");
        }
    }

    #[test]
    fn resync_finds_the_frame_after_damage() {
        let mut bytes = framed(b"{\"first\":true}");
        let second = bytes.len();
        bytes.extend(framed(b"{\"second\":true}"));
        bytes[0] ^= 0xff;
        assert_eq!(resync(&bytes), Some(second));
        assert_eq!(resync(&bytes[second..]), None);
    }
}
