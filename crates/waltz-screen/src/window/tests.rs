//! The laws of windows, over any chunking.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::{Screen, Side};

/// Cuts a text at random character borders.
fn cut<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let borders: Vec<usize> = text.char_indices().map(|(position, _)| position).chain([text.len()]).collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| borders[cut.index(borders.len())]).collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// Cuts a text into pieces of so many characters.
fn pieces_of(text: &str, letters: usize) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    all.chunks(letters).map(|piece| piece.iter().collect()).collect()
}

static SCREEN: LazyLock<Screen> = LazyLock::new(|| Screen::builtin().unwrap());

fn is_harmful(text: &str) -> bool {
    SCREEN.read(text, Side::Response).findings.iter().any(|finding| finding.severity >= 0.5)
}

/// What is released of a stream before rules find harm in what is judged; `None` where they find none. Only
/// windows count: the look back over the whole comes too late for what has gone.
fn released_before_harm(pieces: &[&str], pace: Pace) -> Option<String> {
    let mut window = Window::new(pace);
    for piece in pieces {
        match window.push(piece) {
            Due::Later => {}
            // The rest is read as a whole.
            Due::Never => return is_harmful(&pieces.concat()).then(|| window.released().to_owned()),
            Due::Now => {
                if is_harmful(&window.judged()) {
                    return Some(window.released().to_owned());
                }
                window.release();
            }
        }
    }
    None
}

const GOOD: &str = "The harbour was built long ago by a company from the north. It has two basins and a lock. Ships of \
    every size came there, and the town grew around it. ";

/// Runs that rules pass over, between words.
fn padding() -> impl Strategy<Value = String> {
    let sign = prop::sample::select(vec![
        "\n",
        " ",
        "\t",
        "\u{a0}",
        "\u{3000}",
        " \u{200b}",
        " \u{ad}",
        "\r\n",
        ", ",
        "-",
        "* ",
        "\u{301} ",
        " \u{fe0f}",
        " \u{5b0}",
        "\u{3164} ",
        "\u{2029}",
    ]);
    let length = prop_oneof![0usize..40, 300usize..400, 2_000usize..2_600];
    prop::collection::vec((sign, length), 1..3)
        .prop_map(|runs| runs.iter().map(|(sign, length)| sign.repeat(*length)).collect::<String>() + " ")
}

/// Tokens and keys, some with a sign in them that nobody sees.
fn secret() -> impl Strategy<Value = String> {
    let part = |letters: usize| "aG9Vx3Zk-Q_1".chars().cycle().take(letters).collect::<String>();
    let token = (20usize..3_500)
        .prop_map(move |letters| format!("eyJ{}.eyJ{}.{}", part(30), part(letters), part(43)));
    let sign = prop::sample::select(vec!["sk-", "ghp_", "github_pat_", "AIza", "xoxb-", "hf_"]);
    let key = (sign, 40usize..3_500).prop_map(move |(sign, letters)| format!("{sign}{}", part(letters)));
    (prop_oneof![token, key], prop::option::of(1usize..60)).prop_map(|(mut secret, unseen)| {
        if let Some(at) = unseen.filter(|at| *at < secret.len()) {
            secret.insert(at, '\u{200b}');
        }
        secret
    })
}

fn windows(pieces: &[&str], pace: Pace) -> Vec<String> {
    let mut window = Window::new(pace);
    let mut released = Vec::new();
    for piece in pieces {
        if window.push(piece) == Due::Now {
            let before = window.released().len();
            window.release();
            released.push(window.released()[before..].to_owned());
        }
    }
    let before = window.released().len();
    window.release();
    released.push(window.released()[before..].to_owned());
    released.retain(|window| !window.is_empty());
    released
}

#[test]
fn a_window_ends_with_a_sentence_of_some_length() {
    let text = "Hi. This is a sentence that is long enough to be one window. And here is the next one, which also is long.";
    let words: Vec<&str> = text.split_inclusive(' ').collect();
    let found = windows(&words, Pace::Sentence);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("Hi.") && found[0].trim_end().ends_with("one window."));
}

#[test]
fn text_without_sentences_is_still_released() {
    let words = vec!["word "; 200];
    assert!(windows(&words, Pace::Sentence).len() >= 6);
    let letters = vec!["x"; 2_000];
    assert!(windows(&letters, Pace::Sentence).len() >= 4);
    let digits = vec!["7"; 2_000];
    assert!(windows(&digits, Pace::Sentence).len() >= 4);
}

#[test]
fn a_number_is_not_cut_in_two() {
    let text = "The sentence before it is long enough to be a window of its own, and the card number is 4539 1488 0343 6467.";
    let letters: Vec<String> = text.chars().map(String::from).collect();
    let pieces: Vec<&str> = letters.iter().map(String::as_str).collect();
    for window in windows(&pieces, Pace::Sentence) {
        assert!(!window.contains("4539") || window.contains("4539 1488 0343 6467"), "{window}");
    }
}

#[test]
fn padding_does_not_part_the_words_of_a_term() {
    for padding in ["\n".repeat(320), " ".repeat(2_500), "\u{200b}".repeat(900), "\u{ad}".repeat(1_300)] {
        let text = format!("{GOOD}I will {padding}kill you and your family. {GOOD}");
        for letters in [1, 12, 100] {
            let pieces = pieces_of(&text, letters);
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let released = released_before_harm(&pieces, Pace::Sentence);
            assert!(released.is_some_and(|released| !released.contains("family")), "{padding:?} {letters}");
        }
    }
}

#[test]
fn long_runs_that_are_no_secret_flow() {
    let address = format!("https://example.com/{}", "path/to-it/".repeat(200));
    let image = format!("data:image/png;base64,iVBORw0KGgo{}", "AAAA+/xyz".repeat(300));
    for run in [address, image, "\u{6e2f}\u{53e3}".repeat(900), "ask-me-why-".repeat(300)] {
        let pieces = pieces_of(&run, 12);
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let longest = windows(&pieces, Pace::Sentence).iter().map(|window| window.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= 2 * 160 + PRIVATE_TAIL + 12), "{longest:?} {run}");
    }
}

#[test]
fn words_of_any_length_do_not_part_a_term() {
    let long = [
        "a".repeat(3_000),
        vec!["b".repeat(900); 6].join(" "),
        vec!["c".repeat(60); 7].join(" "),
        "d'".repeat(1_500) + "d",
        "e\u{200b}".repeat(2_500),
        "f ".repeat(2_000),
        "g\u{301}\u{301}\u{301}\u{301}".repeat(9_000),
    ];
    for word in long {
        let text = format!("{GOOD}I will {word} kill you and your family. {}", GOOD.repeat(4));
        let harmful = is_harmful(&text);
        for letters in [1, 12, 100] {
            let pieces = pieces_of(&text, letters);
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let released = released_before_harm(&pieces, Pace::Sentence);
            let family = released.as_ref().is_none_or(|released| released.contains("family"));
            assert_eq!(harmful, !family, "{} {letters}", &word[..4]);
        }
    }
}

#[test]
fn tables_of_single_letters_flow() {
    let rows = ["0, 1, 1, 0, 1\n", "x = 1\n", "Y;N;Y\n", "| a | b | 1 |\n", "A C G T "];
    for row in rows {
        let text = row.repeat(30_000 / row.len());
        let pieces = pieces_of(&text, 12);
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let held = text.len() - windows(&pieces, Pace::Sentence).iter().map(String::len).sum::<usize>();
        assert!(held < 1_000, "{row:?}: {held} bytes were held");
    }
}

#[test]
fn a_secret_of_any_length_is_not_let_go_in_pieces() {
    for secret in
        [format!("sk-{}1", "a".repeat(40_000)), format!("eyJ{0}.eyJ{0}.{0}", "aG9Vx3Zk".repeat(2_000))]
    {
        let text = format!("{GOOD}Here it is: {secret} {GOOD}");
        for letters in [1, 12, 5_000] {
            let pieces = pieces_of(&text, letters);
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let released = released_before_harm(&pieces, Pace::Sentence);
            let before = text.find(&secret).unwrap();
            assert!(released.is_some_and(|released| released.len() <= before), "{letters}");
        }
    }
}

proptest! {
    #[test]
    fn any_chunking_releases_the_same_text(
        text in "[a-z0-9 .!?\\né日\"]{0,400}",
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let pieces = cut(&text, &cuts);
        prop_assert_eq!(windows(&pieces, Pace::Sentence).concat(), text.clone());
        prop_assert_eq!(windows(&pieces, Pace::Paragraph).concat(), text);
    }

    #[test]
    fn what_is_judged_always_ends_with_the_window(released in "\\PC{0,600}", held in "\\PC{0,100}") {
        let mut window = Window::new(Pace::Sentence);
        window.push(&released);
        window.release();
        window.push(&held);
        prop_assert!(window.judged().ends_with(&held));
    }

    #[test]
    fn no_padding_and_no_chunking_lets_a_term_go(
        first in padding(), second in padding(), before in 1usize..4, paragraph in any::<bool>(),
        unseen in prop::sample::select(vec!["\u{200b}", "\u{ad}", "\u{301}", "\u{5b0}", "\u{2060}", "\u{7f}"]),
        times in prop_oneof![Just(0usize), 900usize..1_300],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let term = format!("I will{first}ki{}ll you{second}and your family. ", unseen.repeat(times));
        prop_assume!(is_harmful(&term));
        // What follows is long enough that a window with the end of the term is due, whatever the pace.
        let text = format!("{}{term}{}", GOOD.repeat(before), GOOD.repeat(9));
        let pace = if paragraph { Pace::Paragraph } else { Pace::Sentence };
        let released = released_before_harm(&cut(&text, &cuts), pace);
        prop_assert!(released.is_some_and(|released| !released.contains("ll you")), "{text}");
    }

    #[test]
    fn no_letter_of_a_secret_goes_before_it_is_found(
        secret in secret(), before in 0usize..4, paragraph in any::<bool>(),
        lead in prop::sample::select(vec![" ", "\"", "token=", "(", "\n", "Bearer ", "a.", "\u{200b}"]),
        end in prop::sample::select(vec![" ", "\" ", ". ", "\n", ", "]),
        size in prop::option::of(1usize..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let text = format!("{}{lead}{secret}{end}{}", GOOD.repeat(before), GOOD.repeat(9));
        let pace = if paragraph { Pace::Paragraph } else { Pace::Sentence };
        let even = pieces_of(&text, size.unwrap_or(1));
        let pieces = if size.is_some() { even.iter().map(String::as_str).collect() } else { cut(&text, &cuts) };
        let released = released_before_harm(&pieces, pace);
        prop_assert!(released.is_some_and(|released| released.len() <= GOOD.len() * before + lead.len()), "{text}");
    }
}

/// A judge that is slower than the model lets windows grow; an ordinary word that begins like a secret then only waits for
/// its end.
#[test]
fn a_long_window_that_ends_in_the_middle_of_a_word_only_waits() {
    let mut window = Window::new(Pace::Sentence);
    let text = "A harmless sentence about the old harbour and its many ships. ".repeat(400);
    assert_eq!(window.push(&format!("{text}s")), Due::Later);
    assert_eq!(window.push("hips sail. And on they go. "), Due::Now);
    assert_eq!(window.push(&format!("sk-{}", "a".repeat(MAX_KEY_BYTES))), Due::Never);
    assert_eq!(window.push(" "), Due::Never, "what nobody could tell stays so");
}
