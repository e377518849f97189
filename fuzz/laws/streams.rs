//! Laws of streams: the events of some bytes do not depend on how they came, and whatever the events hold,
//! the stream that a client gets is well formed.

use serde_json::Value;
use waltz_exchange::anthropic::stream::{Decoder, Encoder, Frame, message_stop};
use waltz_exchange::json;
use waltz_exchange::openai::StreamAssembler;
use waltz_exchange::sse::{self, Event, SseError};

/// The first byte says how the rest is cut; the rest is the stream.
pub fn law(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let whole = decode(bytes.chunks(usize::MAX));
    assert_eq!(decode(bytes.chunks(1 + usize::from(*cut))), whole, "pieces of one size");
    assert_eq!(decode(bytes.chunks(1)), whole, "single bytes");
    assert_eq!(decode(bytes.split_inclusive(|byte| byte == cut)), whole, "cut after a byte");
    let (events, _) = whole;
    let size: usize = events.iter().map(|event| event.name.len() + event.data.len()).sum();
    assert!(size <= bytes.len(), "events of {size} bytes from {}", bytes.len());
    for event in &events {
        let again = Event { name: String::new(), data: event.data.clone() };
        let (read, error) = decode([sse::encode(&event.data).as_bytes()].into_iter());
        assert_eq!((read, error), (vec![again], None), "an event reads back");
    }
    openai_upstream(&events);
    anthropic_upstream(&events);
}

/// All events of a stream that comes in pieces, and why it ended early.
fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Event>, Option<SseError>) {
    let mut decoder = sse::Decoder::default();
    let mut events = Vec::new();
    for piece in pieces {
        let before = events.len();
        match decoder.push(piece, &mut events) {
            Ok(ended) => assert!(ended || events.len() == before, "an event without the end of a line"),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

/// Chunks of an OpenAI upstream, for a client of each form.
fn openai_upstream(events: &[Event]) {
    let mut assembler = StreamAssembler::default();
    let mut encoder = Encoder::default();
    let mut frames = Vec::new();
    let mut contents = String::new();
    for event in events {
        let Ok(chunk) = json::parse_answer(event.data.as_bytes()) else { break };
        let content = content_of(&chunk);
        let encoded = encoder.push(chunk.clone());
        let (Ok(more), Ok(())) = (encoded, assembler.push(chunk)) else { return };
        frames.extend(more);
        contents.push_str(&content);
    }
    let finished = assembler.is_finished();
    match (encoder.finish(), assembler.finish()) {
        (Ok(more), Ok(answer)) => {
            frames.extend(more);
            frames.push(message_stop());
            well_formed(&frames);
            assert!(answer.choices.iter().all(|choice| choice.finish_reason.is_some()) == finished);
            if let Some(Value::String(whole)) = answer.choices[0].message.get("content")
                && answer.choices[0].index == 0
            {
                assert_eq!(*whole, contents, "no piece is lost or told twice");
            }
        }
        (Ok(_), Err(error)) => unreachable!("an answer for one form only: {error}"),
        // A stream without the first choice has nothing for a client of Anthropic.
        (Err(_), _) => {}
    }
}

/// The pieces of text that a chunk adds to the first choice.
fn content_of(chunk: &serde_json::Map<String, Value>) -> String {
    let items = chunk.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let index =
        |item: &Value| item["index"].as_u64().and_then(|index| u32::try_from(index).ok()).unwrap_or(0);
    let first = items.iter().filter(|item| index(item) == 0);
    first.filter_map(|item| item.get("delta")?.get("content")?.as_str()).collect()
}

/// Events of an Anthropic upstream: their chunks make an answer, or an error says why not.
fn anthropic_upstream(events: &[Event]) {
    let mut decoder = Decoder::new(0);
    let mut assembler = StreamAssembler::default();
    let mut encoder = Encoder::default();
    let mut frames = Vec::new();
    for event in events {
        let ended = decoder.is_ended();
        let Ok(chunks) = decoder.push(event) else { return };
        assert!(!ended || chunks.is_empty(), "nothing comes after the end");
        for chunk in chunks {
            let encoded = encoder.push(chunk.clone());
            let (Ok(()), Ok(more)) = (assembler.push(chunk), encoded) else { return };
            frames.extend(more);
        }
    }
    if let (Ok(more), Ok(_)) = (encoder.finish(), assembler.finish()) {
        frames.extend(more);
        frames.push(message_stop());
        well_formed(&frames);
    }
}

/// One start, blocks one after the other with rising numbers, one end.
fn well_formed(frames: &[Frame]) {
    let mut open = None;
    let mut next = 0;
    for (position, frame) in frames.iter().enumerate() {
        assert_eq!(frame.data["type"], frame.name);
        assert_eq!(position == 0, frame.name == "message_start", "{frames:?}");
        assert_eq!(position + 2 == frames.len(), frame.name == "message_delta", "{frames:?}");
        assert_eq!(position + 1 == frames.len(), frame.name == "message_stop", "{frames:?}");
        let index = frame.data["index"].as_u64();
        match frame.name {
            "content_block_start" => {
                assert_eq!((open, index), (None, Some(next)), "{frames:?}");
                open = index;
            }
            "content_block_delta" => assert!(open.is_some() && open == index, "{frames:?}"),
            "content_block_stop" => {
                assert!(open.is_some() && open == index, "{frames:?}");
                open = None;
                next += 1;
            }
            _ => assert_eq!(open, None, "{frames:?}"),
        }
        let wire = frame.encode();
        let (read, error) = decode([wire.as_bytes()].into_iter());
        let event = Event { name: frame.name.to_owned(), data: frame.data.to_string() };
        assert_eq!((read, error), (vec![event], None), "a frame is one event");
    }
}
