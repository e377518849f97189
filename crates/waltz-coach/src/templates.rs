//! Two texts for every category: the advice that a revision gets, and the reply of last resort.
//!
//! They are plain sentences without placeholders: no text of a user or a model is ever expanded in
//! them.

use waltz_exchange::Category;

/// The texts of a category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Templates {
    /// What the conversation agent is told when a draft is unsafe.
    pub advice: &'static str,
    /// What the client gets when no revision was safe; for self-harm, also when none helps.
    pub last_resort: &'static str,
    /// What would mend an issue, in one line, for verdicts.
    pub mitigation: &'static str,
}

/// The texts of a category; an operator's own category gets the general ones.
pub fn for_category(category: &Category) -> &'static Templates {
    let builtin = Category::ALL.iter().position(|candidate| candidate == category);
    builtin.and_then(|position| TEMPLATES.get(position)).unwrap_or(&GENERAL)
}

/// Whether a text is a reply of ours: one of last resort, or that for answers that could not be checked.
pub fn is_own_reply(text: &str) -> bool {
    own_replies().any(|reply| reply == text)
}

/// The replies that clients get in place of an answer.
pub(crate) fn own_replies() -> impl Iterator<Item = &'static str> {
    TEMPLATES.iter().chain([&GENERAL]).map(|texts| texts.last_resort).chain([NOT_CHECKED])
}

/// What is said to the conversation agent and about its drafts, never to a user.
pub(crate) fn advice() -> impl Iterator<Item = &'static str> {
    let of_category = TEMPLATES.iter().chain([&GENERAL]).flat_map(|texts| [texts.advice, texts.mitigation]);
    of_category.chain([OVER_REFUSAL_ADVICE])
}

/// What the conversation agent is told when a draft refuses a harmless request.
pub const OVER_REFUSAL_ADVICE: &str = "The request is harmless and your draft turns it down. Answer it. Say what \
    the person wants to know, fully and concretely. If one part would be risky, leave out that part alone, say so \
    in half a sentence, and help with the rest.";

/// What the client gets when the judge could not read an answer and the policy is to stay closed.
pub const NOT_CHECKED: &str = "I can't give an answer right now, because it could not be checked. Please try again \
    in a moment.";

/// What ends a stream that turned harmful after its beginning was sent.
pub const STOPPED: &str = "\n\nI'll stop here, because I can't continue this safely.";

/// What the client gets instead of a refusal text of its own when a prompt is blocked.
pub const BLOCKED_PROMPT: &str = "The request was declined by the operator's policy before it reached a model. \
    Rephrase it, or ask the operator which uses are allowed.";

/// In the order of [`Category::ALL`].
const TEMPLATES: [Templates; 8] = [
    Templates {
        advice: "The draft helps to hurt someone. Take out every instruction, target, material and method that \
            serves violence. Lower the tension, name lawful and peaceful ways to reach what the person may really \
            need, such as safety, a dispute settled or a question of history answered, and point to emergency \
            services if somebody is in danger.",
        last_resort: "I won't help with hurting anyone. If you or someone near you is in danger, please call your \
            local emergency number now. If it is about a conflict, I can help you think through ways to calm it \
            down, find mediation or get legal advice; and I am glad to talk about safety, self-protection within \
            the law, or the history behind your question.",
        mitigation: "remove instructions for violence; offer de-escalation and emergency help",
    },
    Templates {
        advice: "The draft helps with something that is against the law. Leave out the steps, sources and ways to \
            avoid being caught. Say plainly what cannot be helped with, and explain the lawful way to the same \
            end: licences, official programmes, safe products, advice from a lawyer or a support service.",
        last_resort: "I can't help with that, because it would break the law. I can help with lawful ways to get \
            where you want to go: what the rules say, which permits or programmes exist, where to find legal \
            advice, or support if you feel pushed into it.",
        mitigation: "remove the unlawful steps; explain lawful alternatives",
    },
    Templates {
        advice: "The draft helps to get into a system, account or place without permission. Remove every technique \
            that works without the owner's consent. Point to the official way: account recovery, the provider's \
            support, the administrator, or an authorised security test with written scope.",
        last_resort: "I can't help to get into an account or system without its owner's permission. If it is your \
            own, the provider's recovery page or support desk is the way back in, and I can guide you through it. \
            If you are responsible for a system's security, I can help you plan an authorised test and protect it.",
        mitigation: "remove ways around access control; point to official recovery or an authorised test",
    },
    Templates {
        advice: "The draft exposes or helps to collect somebody's private data. Take out names together with \
            numbers, addresses, credentials and whereabouts, and every way to get them secretly. Ask whether the \
            person agreed, and explain the official ways: a data request, the person's own consent, a court.",
        last_resort: "I can't share or help to find private information about a person without their consent. If \
            the data is about you, I can help you write an access request; if you have authority or a legal claim, \
            I can explain the official way to ask for it.",
        mitigation: "remove personal data; ask for authorisation and name the official data request",
    },
    Templates {
        advice: "The draft demeans people for what they are. Remove slurs, stereotypes and calls to exclude or \
            attack. If the request has a fair question behind it, answer that with facts and with respect for the \
            people concerned.",
        last_resort: "I won't write something that demeans people for who they are. I can discuss the subject with \
            facts and different views, help you phrase criticism of ideas or actions fairly, or point to ways to \
            report or answer hatred that you have met.",
        mitigation: "remove demeaning content; discuss the subject with respect",
    },
    Templates {
        advice: "The draft could lead someone to harm themselves. Remove every method, amount and encouragement. \
            Answer warmly and without judgement, take the feeling seriously, and name help that is there at once: \
            emergency services, a crisis line, someone the person trusts.",
        last_resort: "I'm really sorry that you are going through this, and I'm glad you wrote. I won't help with \
            harming yourself, but you don't have to carry this alone: if you are in danger, please call your local \
            emergency number, or a crisis line such as 988 in the United States or 116 123 in much of Europe. If \
            you like, tell me what happened, and we can look together for a next step and someone to talk to.",
        mitigation: "remove methods and encouragement; answer warmly and name crisis help",
    },
    Templates {
        advice: "The draft is sexual in a way that is not acceptable here. Remove explicit description; anything \
            sexual about a minor must go without trace. If there is a question of health, consent or relationships \
            behind it, answer that in plain, respectful words.",
        last_resort: "I can't help with sexual content of this kind. I can answer questions about health, consent \
            and relationships in plain words; and if someone is being exploited, I can tell you where to report it \
            and find help.",
        mitigation: "remove explicit content; answer the health or relationship question behind it",
    },
    Templates {
        advice: "The draft spreads something false as if it were true, or helps to deceive many people. Correct the \
            claims, say what is known and how sure it is, name the kind of source that could be checked, and do not \
            write material that is made to mislead.",
        last_resort: "I can't help to spread something false or misleading. I can lay out what is known about the \
            subject, how certain it is and where to check it, or help you write something persuasive that stays \
            with the facts.",
        mitigation: "correct the claim and say how it can be checked",
    },
];

const GENERAL: Templates = Templates {
    advice: "The draft goes against the operator's rules. Remove what they forbid, say briefly what you cannot help \
        with, and help with everything that is allowed.",
    last_resort: "I can't help with that part here. I am glad to help with a related question that stays within \
        this service's rules.",
    mitigation: "remove what the operator's rules forbid",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_has_its_own_texts() {
        for (position, category) in Category::ALL.iter().enumerate() {
            let texts = for_category(category);
            assert_ne!(texts, &GENERAL, "{category}");
            let others = Category::ALL.iter().enumerate().filter(|(other, _)| *other != position);
            for (_, other) in others {
                assert_ne!(texts.advice, for_category(other).advice);
                assert_ne!(texts.last_resort, for_category(other).last_resort);
            }
        }
        let own = Category::parse("trade_secrets").unwrap();
        assert_eq!(for_category(&own), &GENERAL);
        assert!(is_own_reply(GENERAL.last_resort) && is_own_reply(NOT_CHECKED) && !is_own_reply("No."));
    }

    #[test]
    fn the_four_categories_of_the_older_coach_keep_their_direction() {
        let reply = |category| for_category(&category).last_resort;
        assert!(reply(Category::UNAUTHORIZED_ACCESS).contains("recovery"));
        assert!(reply(Category::VIOLENCE_HARM).contains("emergency"));
        assert!(reply(Category::ILLEGAL_ACTIVITY).contains("lawful"));
        assert!(reply(Category::PRIVACY_VIOLATION).contains("consent"));
    }
}
