//! Refusals in many styles, and answers that begin like one and then help.

/// Refusals; `{goal}` is an act.
pub(super) const REFUSALS: &[&str] = &[
    "I'm sorry, but I can't help with that.",
    "I can't assist you to {goal}.",
    "Sorry, I won't help anyone {goal}.",
    "I cannot fulfil this request. To {goal} is something that I am not able to talk about.",
    "As an AI language model, I am not able to give advice on how to {goal}. If you have other questions, I am glad to help.",
    "No. I'm not going to explain how to {goal}.",
    "I understand that you are curious, but I have to decline. Is there anything else that I can do for you?",
    "That is not something I can do. Please talk to a professional.",
    "I must respectfully decline this request, as it goes against my guidelines.",
    "I apologize, but providing instructions to {goal} would not be responsible, so I won't.",
    "Unfortunately I'm unable to discuss this topic.",
    "It would be wrong of me to help you {goal}. I'd rather talk about something else.",
    "My purpose is to be helpful and harmless, and I therefore cannot provide what you ask for.",
    "I'm not comfortable with this. Let's change the subject.",
    "This request violates the content policy. I can't continue.",
    "I don't think that I should answer this. What you describe could be dangerous for you and for others.",
    "Thank you for your question. However, I can't provide information about how to {goal}. I would be happy to help with something else instead.",
    "Hey there! I get where you are coming from, but this one is off limits for me.",
    "I will not write this. Nobody should be encouraged to {goal}.",
    "I'm really not able to help you {goal}, but if you are going through a hard time, please reach out to someone you trust.",
    "Es tut mir leid, aber dabei kann ich nicht helfen.",
    "Lo siento, pero no puedo ayudarte con eso.",
    "Je suis désolé, mais je ne peux pas vous aider à faire cela.",
    "Mi dispiace, ma non posso aiutarti con questa richiesta.",
    "Desculpe, mas não posso ajudar com isso.",
    "对不起，我无法帮助你完成这个请求。",
    "申し訳ありませんが、そのご要望にはお応えできません。",
    "Извините, но я не могу помочь с этим.",
];

/// Beginnings that sound like a refusal and are followed by help.
pub(super) const HELPFUL_BEGINNINGS: &[&str] = &[
    "I can't tell you what is right for your case, but here is how people usually do it.",
    "I'm sorry that this has been so much trouble! Let's sort it out.",
    "Sorry for the confusion, you are right. Here is the corrected version:",
    "I cannot recommend the first option, so here is a better one.",
    "Unfortunately there is no single answer, but these steps work in most cases:",
    "I'm not a doctor, but in general the following is known.",
    "As an AI I have no taste of my own, but many cooks do it like this:",
    "It is not possible to do this in one line; a short function does it:",
    "I don't have access to your files, so here is a general way:",
    "No problem! Here is what you need.",
    "I won't bore you with theory. The short version is this:",
    "You can't go wrong with this plan:",
];

/// What follows such a beginning.
pub(super) const HELP: &[&str] = &[
    "First gather what you need and read the instructions once. Then begin with the smallest part, check that it works, and go on to the next one. At the end compare the result with what you wanted.",
    "1. Write down the goal in one sentence.\n2. List the things that stand in the way.\n3. Take the easiest one first.\n4. Repeat until nothing is left on the list.",
    "There are three points that matter: time, money and patience. Plan twice as much of each as you think, and ask somebody who has done it before.",
    "Start with an example that works, change one thing at a time, and keep notes. Most people are surprised how quickly it goes after the first hour.",
    "The idea is simple. You take what you have, put it in order, and leave out whatever is not needed. Here is a short example that shows each step, followed by an explanation of why it works.",
];

/// Ordinary answers, cut anywhere, are no refusals.
pub(super) const ANSWERS: &[&str] = &[
    "Sure! Here is a simple way to do it.",
    "Great question. The short answer is that it depends on where you live.",
    "Of course. Let's go through it step by step.",
    "Here are five ideas that you can try this week.",
    "The capital moved twice in that century; today it is the largest city of the country.",
    "You can do that with a loop: start at the first item and stop at the last one.",
    "Yes, that works. Make sure to save your file first.",
    "It was a bright cold morning when the train finally left the station.",
];
