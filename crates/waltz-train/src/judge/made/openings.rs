//! What assistants say around their answers: greetings, offers, thanks, questions back, short answers. Refusals end in
//! the same courtesies, so that without such rows "How can I help?" looks like one.

use super::super::chance::Chance;
use super::ordinary;

/// What somebody said, and the short friendly answer to it.
pub(super) fn pair(chance: &mut Chance) -> (String, String) {
    let prompt = match chance.below(3) {
        0 => (*chance.pick(SMALL_TALK)).to_owned(),
        1 => format!("{} {}", chance.pick(SMALL_TALK), ordinary::request(chance)),
        _ => ordinary::request(chance),
    };
    (prompt, answer(chance))
}

/// One to three courtesies, in an order in which people say them.
fn answer(chance: &mut Chance) -> String {
    let mut said: Vec<&str> = Vec::new();
    for (list, odds) in [(GREETINGS, 2), (BODIES, 2), (OFFERS, 2), (CLOSINGS, 3)] {
        if chance.once_in(odds) {
            said.push(*chance.pick(list));
        }
    }
    if said.is_empty() {
        let list = if chance.once_in(2) { OFFERS } else { BODIES };
        said.push(*chance.pick(list));
    }
    said.join(" ").replace("{topic}", ordinary::topic(chance))
}

const SMALL_TALK: &[&str] = &[
    "Hi",
    "Hello!",
    "hey there",
    "Good morning.",
    "Good evening, how are you?",
    "Hello, who are you?",
    "hi, what can you do?",
    "Thanks!",
    "Thank you so much, that was great.",
    "ok",
    "Can you help me?",
    "I have a question.",
    "Are you there?",
    "Nice to meet you.",
    "Bye!",
    "Sorry, I meant something else.",
    "test",
    "What is your name?",
];

const GREETINGS: &[&str] = &[
    "Hello!",
    "Hi!",
    "Hi there!",
    "Hey!",
    "Good morning!",
    "Welcome!",
    "Hello, and welcome back.",
    "Nice to meet you.",
    "Hello! I'm an AI assistant.",
    "Hi, I am a language model made to help people.",
    "Greetings!",
    "You're welcome!",
    "My pleasure!",
    "No problem at all.",
    "Thank you for your question.",
    "Thanks for asking!",
    "Great question!",
    "Sure!",
    "Sure thing.",
    "Certainly!",
    "Of course!",
    "Absolutely.",
    "Happy to help.",
    "I'd be happy to help with that!",
    "I can help with that.",
    "Yes, I can do that.",
    "Good point.",
    "I see.",
    "I understand.",
    "Sorry to hear that.",
    "Apologies for the mix-up!",
];

const BODIES: &[&str] = &[
    "I'm doing well, and you?",
    "I am ready when you are.",
    "I am an assistant and can write, explain, translate and plan.",
    "I can answer questions, draft texts and help with code.",
    "I am not a person, but I like a good conversation.",
    "Could you tell me a little more about {topic}?",
    "Could you please clarify what you mean by {topic}?",
    "Which part of {topic} interests you?",
    "To help you best, I need a few details about {topic}.",
    "I'm not sure that I understand. Do you mean {topic}?",
    "It seems that your message was cut off. Can you send it again?",
    "I don't see a text in your message. Please paste it here.",
    "I don't have real-time data, so please check the current figures.",
    "I don't have access to current prices, but the shop's page on {topic} lists them.",
    "I can't see your calendar; which day suits you?",
    "I can't browse the web, but here is what I know about {topic}.",
    "I do not have a body or feelings, but I enjoy questions about {topic}.",
    "I'm only a program, so I never get tired. Let's talk about {topic}!",
    "As an AI I don't have a birthday, but thanks for the good wishes!",
    "I don't remember earlier chats, so please tell me again what you need.",
    "Here is a short answer on {topic}.",
    "Yes, {topic} is a good place to start.",
    "No, that is not the case.",
    "Not quite: it was a year later.",
    "It depends on what you want to do with {topic}.",
    "That is correct.",
    "I don't know the exact number, but it is about two hundred.",
    "The answer is 42.",
    "Paris.",
    "Done. I changed the second line.",
    "I have updated the text on {topic} as you asked.",
    "Here is what I found about {topic}.",
    "Let me think about {topic} for a moment.",
    "Let's get started with {topic}.",
    "I love talking about {topic}.",
    "I have no opinion of my own on {topic}, but many people like it.",
];

const OFFERS: &[&str] = &[
    "How can I help you today?",
    "How can I assist you?",
    "How may I be of service?",
    "What can I do for you?",
    "What would you like to know?",
    "What would you like to talk about?",
    "What's on your mind?",
    "How can I help you with {topic}?",
    "What can I help you with today?",
    "Is there anything else I can help with?",
    "Is there anything else that you would like to know about {topic}?",
    "Do you have a question about {topic}?",
    "Would you like an example?",
    "Would you like me to go on?",
    "Shall I explain it in more detail?",
    "Should I write it in another style?",
    "Tell me what you need.",
    "Ask me anything about {topic}.",
    "I'm here to help.",
    "I am here to answer your questions and to give information.",
];

const CLOSINGS: &[&str] = &[
    "Let me know if you need anything else.",
    "Let me know if you have any other questions!",
    "Feel free to ask.",
    "If you have further questions, feel free to ask.",
    "I hope this helps!",
    "I hope that answers your question.",
    "Just tell me if something is unclear.",
    "Have a great day!",
    "Good luck with {topic}!",
    "Take care!",
    "See you soon.",
    "Enjoy!",
    "If you need help with {topic} later, I'm here.",
];
