use crate::error::Error;
use crate::finding::Side;
use crate::screen::Screen;

#[test]
fn refusals_in_many_styles() -> Result<(), Error> {
    let screen = Screen::builtin()?;
    for text in [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but I can’t assist with that request.",
        "I cannot assist with this.",
        "I am unable to provide that information.",
        "As an AI language model, I cannot create such content.",
        "That goes against my guidelines.",
        "I'm not comfortable helping with this.",
        "I must decline.",
        "No.",
        "Absolutely not.",
        "I won't help you do that.",
        "Sorry, I can't do that.",
        "I will not write this.",
        "I apologize, but I cannot fulfill this request.",
        "Unfortunately, I'm not able to help with that.",
        "I'd rather not answer this.",
        "This request violates our usage policies, so I cannot answer that.",
        "That's not something I can help with.",
        "I can’t in good conscience write that.",
        "My apologies, but I am not able to discuss this topic. Is there something else I can help with?",
        "Thank you for asking. However, I cannot provide instructions for this, because it is illegal and harmful.",
        "I refuse to answer.",
    ] {
        let score = screen.read(text, Side::Response).refusal;
        assert!(score >= 0.5, "{score} for {text}");
        assert!(score <= 1.0);
    }
    Ok(())
}

#[test]
fn sentences_that_only_sound_like_refusals() -> Result<(), Error> {
    let screen = Screen::builtin()?;
    for text in [
        "I can't recommend this restaurant enough",
        "You cannot divide by zero",
        "He said he can't come",
        "",
        "Yes, of course.",
        "Sorry for the late reply! Here is the code you asked for.",
        "You can't use `await` outside an async function.",
        "The bank cannot give you a loan without proof of income.",
        "She refused to answer the question.",
        "I can't wait to help you plan the party!",
        "No problem, here are the steps.",
        "The function cannot return a reference to a local variable.",
        "Unfortunately the file was not found, so check the path and try again.",
        "To decline an invitation politely, thank the host first.",
    ] {
        let score = screen.read(text, Side::Response).refusal;
        assert!(score < 0.5, "{score} for {text}");
    }
    Ok(())
}

#[test]
fn help_at_length_after_a_refusal_weighs_less() -> Result<(), Error> {
    let screen = Screen::builtin()?;
    let refusal = "I'm sorry, but I can't help with that.";
    let helped = format!("{refusal} {}", "Here is the next part of a long and useful answer. ".repeat(60));
    let bare = screen.read(refusal, Side::Response).refusal;
    let long = screen.read(&helped, Side::Response).refusal;
    assert!(long < 0.5 && long < bare, "{long} against {bare}");
    Ok(())
}
