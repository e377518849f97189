//! Server-sent events, decoded from any chunking of the bytes and encoded for the wire.

/// The longest line that is accepted; an upstream that sends more is broken.
pub const MAX_LINE: usize = 4 * 1024 * 1024;

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The event's name, empty when none was given.
    pub name: String,
    /// The data lines, joined by line feeds.
    pub data: String,
}

/// Why a byte stream is not a stream of events.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line grew past the limit.
    #[error("a line of the event stream is longer than {MAX_LINE} bytes")]
    LineTooLong,
    /// A line is not UTF-8.
    #[error("the event stream is not valid UTF-8")]
    NotUtf8,
}

/// Turns bytes into events. Splits inside UTF-8 characters and mixed line ends make no difference.
#[derive(Debug, Default)]
pub struct Decoder {
    line: Vec<u8>,
    after_carriage_return: bool,
    started: bool,
    name: String,
    data: String,
    has_data: bool,
}

impl Decoder {
    /// Takes the next bytes and appends the events that they complete. Returns whether a line ended: bytes
    /// alone are no progress.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<bool, SseError> {
        let mut rest = bytes;
        let mut ended = false;
        if self.after_carriage_return && !rest.is_empty() {
            self.after_carriage_return = false;
            if rest[0] == b'\n' {
                rest = &rest[1..];
            }
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&rest[..end])?;
            let was_carriage_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if was_carriage_return {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_carriage_return = true,
                }
            }
            self.end_line(events)?;
            ended = true;
        }
        self.extend_line(rest)?;
        Ok(ended)
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        if self.line.len() + bytes.len() > MAX_LINE || self.data.len() > MAX_LINE {
            return Err(SseError::LineTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), SseError> {
        let mut line = std::str::from_utf8(&self.line).map_err(|_| SseError::NotUtf8)?;
        if !self.started {
            self.started = true;
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            if self.has_data {
                events.push(Event {
                    name: std::mem::take(&mut self.name),
                    data: std::mem::take(&mut self.data),
                });
                self.has_data = false;
            }
            self.name.clear();
        } else if !line.starts_with(':') {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => {
                    if self.has_data {
                        self.data.push('\n');
                    }
                    self.data.push_str(value);
                    self.has_data = true;
                }
                "event" => value.clone_into(&mut self.name),
                _ => {}
            }
        }
        self.line.clear();
        Ok(())
    }
}

/// One event as it goes on the wire, with the blank line that ends it.
pub fn encode(data: &str) -> String {
    format!("data: {}\n\n", data.replace('\n', "\ndata: "))
}

/// A comment that clients ignore; it keeps a connection alive while a draft is being read.
pub const HOLD: &str = ": hold\n\n";

/// The frame that ends an OpenAI stream.
pub const DONE: &str = "data: [DONE]\n\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(pieces: &[&[u8]]) -> Vec<Event> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut events).unwrap();
        }
        events
    }

    #[test]
    fn comments_names_multi_line_data_and_line_ends() {
        let text = "\u{feff}: hi\r\nevent: delta\rdata: a\ndata:b\r\n\r\ndata: [DONE]\n\nid: 3\n\n";
        let events = decode(&[text.as_bytes()]);
        assert_eq!(
            events,
            vec![
                Event { name: "delta".into(), data: "a\nb".into() },
                Event { name: String::new(), data: "[DONE]".into() },
            ]
        );
    }

    #[test]
    fn every_line_of_an_event_goes_on_the_wire() {
        for data in ["", "one", "one\ntwo", "\n", "one\n", "\n\none", " one"] {
            let expected = Event { name: String::new(), data: data.to_owned() };
            assert_eq!(decode(&[encode(data).as_bytes()]), [expected]);
        }
    }

    #[test]
    fn only_the_end_of_a_line_is_progress() {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        assert_eq!(decoder.push(b"dat", &mut events), Ok(false));
        assert_eq!(decoder.push(b"a: x\n", &mut events), Ok(true));
        assert_eq!(decoder.push(b": still here\n", &mut events), Ok(true));
        assert!(events.is_empty());
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        let block = vec![b'x'; MAX_LINE / 2];
        assert_eq!(decoder.push(&block, &mut events), Ok(false));
        assert_eq!(decoder.push(&block, &mut events), Ok(false));
        assert_eq!(decoder.push(b"x", &mut events), Err(SseError::LineTooLong));
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            lines in proptest::collection::vec("(data: ?|: |event: )?[aé日😀]{0,6}", 0..20),
            ends in proptest::collection::vec(prop_oneof![Just("\n"), Just("\r\n"), Just("\r")], 20),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut text = String::new();
            for (line, end) in lines.iter().zip(&ends) {
                text.push_str(line);
                text.push_str(end);
            }
            text.push_str("\n\n");
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            at.push(0);
            at.push(bytes.len());
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(&pieces), decode(&[bytes]));
        }
    }
}
