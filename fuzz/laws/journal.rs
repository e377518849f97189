//! Laws of the journal: whatever a crash or a bad disk left of a segment, every frame that is whole comes
//! back, in its order, and nothing else does.

use std::path::Path;

use waltz_store::{Recovered, Settings, recover};

const HEADER: &[u8] = b"WALTZJ1\n";

/// The bytes as they are, and as a script of sound frames with damage between them.
pub fn law(data: &[u8]) {
    any_bytes(data);
    frames_between_damage(data);
}

/// A segment of any bytes. What comes back is what an independent reading of the format finds.
fn any_bytes(bytes: &[u8]) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let segment = write_segment(folder.path(), bytes);
    let Ok(recovered) = recover(&Settings::at(folder.path())) else {
        let family = bytes.starts_with(b"WALTZJ") && bytes.len() >= HEADER.len();
        assert!(family && !bytes.starts_with(HEADER), "only a newer format is refused");
        assert_eq!(std::fs::read(segment).ok().as_deref(), Some(bytes), "and is left as it was");
        return;
    };
    let expected = sound_frames(bytes);
    assert_eq!(recovered.payloads, expected);
    let header = HEADER.len().min(bytes.len());
    let framed: usize = expected.iter().map(|payload| 8 + payload.len()).sum();
    let accounted = header as u64 + framed as u64 + recovered.unreadable_bytes + recovered.torn_bytes;
    assert_eq!(accounted, bytes.len() as u64, "every byte is accounted for");
    if recovered.unreadable_bytes > 0 {
        assert_eq!(recovered.damaged.len(), 1, "damage is kept for a person to see");
    }
    again(folder.path(), &recovered);
}

/// Sound frames, and between them whatever the script says: the sound ones all come back.
fn frames_between_damage(script: &[u8]) {
    let mut bytes = HEADER.to_vec();
    let mut sound = Vec::new();
    for piece in script.split(|byte| *byte == b'\n').take(64) {
        match piece.split_first() {
            Some((b'!', damage)) => bytes.extend_from_slice(damage),
            Some((b'-', half)) => {
                let frame = framed(&payload_of(half));
                bytes.extend_from_slice(&frame[..frame.len() / 2]);
            }
            _ => {
                let payload = payload_of(piece);
                bytes.extend(framed(&payload));
                sound.push(payload);
            }
        }
    }
    let Ok(folder) = tempfile::tempdir() else { return };
    write_segment(folder.path(), &bytes);
    let recovered = recover(&Settings::at(folder.path()));
    assert!(recovered.is_ok(), "{:?}", recovered.err());
    let Ok(recovered) = recovered else { return };
    assert_eq!(recovered.payloads, sound_frames(&bytes));
    // Damage whose checksum is right covers what follows it; only a forger, or this search, writes such.
    let forged = recovered.payloads.iter().any(|payload| !sound.contains(payload));
    let mut found = recovered.payloads.iter();
    for payload in &sound {
        assert!(forged || found.any(|found| found == payload), "an intact frame is lost");
    }
    again(folder.path(), &recovered);
}

/// A second start finds the same entries, and nothing more to cut off.
fn again(folder: &Path, first: &Recovered) {
    let second = recover(&Settings::at(folder));
    assert!(second.is_ok(), "{:?}", second.err());
    let Ok(second) = second else { return };
    assert_eq!(second.payloads, first.payloads, "a second start finds the same");
    assert_eq!((second.damaged, second.torn_bytes), (first.damaged.clone(), 0));
}

fn write_segment(folder: &Path, bytes: &[u8]) -> std::path::PathBuf {
    let journal = folder.join("journal");
    let segment = journal.join("0000000000000001.journal");
    let written = std::fs::create_dir_all(&journal).and_then(|()| std::fs::write(&segment, bytes));
    assert!(written.is_ok(), "{written:?}");
    segment
}

/// A payload as the journal writes them: an object of printable bytes.
fn payload_of(text: &[u8]) -> Vec<u8> {
    let printable = text.iter().map(|byte| b' ' + byte % 95);
    [b'{'].into_iter().chain(printable).chain([b'}']).collect()
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes()[..], &crc32(payload).to_le_bytes(), payload].concat()
}

/// The payloads of a segment: frames one after the other, and after damage from the next frame on that
/// holds an object.
fn sound_frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut rest = bytes.get(HEADER.len()..).unwrap_or_default();
    let mut after_damage = false;
    while !rest.is_empty() {
        match sound_frame(rest).filter(|payload| !after_damage || payload.starts_with(b"{")) {
            Some(payload) => {
                payloads.push(payload.to_vec());
                rest = &rest[8 + payload.len()..];
                after_damage = false;
            }
            None => {
                rest = &rest[1..];
                after_damage = true;
            }
        }
    }
    payloads
}

fn sound_frame(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|length| *length > 0)?;
    let payload = rest.get(..length)?;
    (crc32(payload) == u32::from_le_bytes(*checksum)).then_some(payload)
}

/// The checksum of the format, written anew, so that the law does not share a mistake with the journal.
fn crc32(bytes: &[u8]) -> u32 {
    let mut register = u32::MAX;
    for byte in bytes {
        register ^= u32::from(*byte);
        for _ in 0..8 {
            register = if register & 1 == 1 { (register >> 1) ^ 0xedb8_8320 } else { register >> 1 };
        }
    }
    !register
}
