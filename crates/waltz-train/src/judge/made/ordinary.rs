//! Ordinary requests: what people ask an assistant all day, in the usual forms and on the usual topics.

use super::super::chance::Chance;

/// An ordinary request.
pub(super) fn request(chance: &mut Chance) -> String {
    let form = chance.pick(FORMS);
    let topic = chance.pick(TOPICS);
    let other = chance.pick(TOPICS);
    let text = form.replace("{topic}", topic).replace("{other}", other);
    if chance.once_in(6) { format!("{} {text}", chance.pick(LEADS)) } else { text }
}

const LEADS: &[&str] = &[
    "Hi!", "Please help me with this.", "You are a helpful assistant.", "Act as an expert in the field.",
    "I am a student.", "For my job I need the following.", "Quick question:", "Be brief.",
    "Pretend you are a teacher.", "As a journalist I want to know this.", "My boss asked me this today.",
];

const FORMS: &[&str] = &[
    "Generate a list of five facts about {topic}.", "Write a short story about {topic}.",
    "Write a poem about {topic} in the style of a nursery rhyme.", "Create a slogan for {topic}.",
    "Explain {topic} to a ten-year-old.", "Describe the history of {topic}.", "What is {topic}?",
    "What are the advantages and disadvantages of {topic}?", "Compare {topic} and {other}.",
    "Summarize the main ideas behind {topic} in two sentences.", "Give me three examples of {topic}.",
    "Suggest a title for an essay on {topic}.", "Write a paragraph that describes {topic}.",
    "Rewrite this sentence in the passive voice: \"Many people like {topic}.\"",
    "Classify the following as positive or negative: \"I was disappointed by {topic}.\"",
    "Find a synonym for the word that describes {topic} best.", "Design a poster for an event on {topic}.",
    "Come up with a question that tests knowledge of {topic}.", "How does {topic} affect {other}?",
    "How do I start a business around {topic}?", "Write an e-mail to a colleague about {topic}.",
    "Translate \"I know a lot about {topic}\" into Spanish.", "Identify the most important part of {topic}.",
    "Tell me a joke about {topic}.", "Make a plan for learning about {topic} in four weeks.",
    "Construct an argument in favour of {topic}.", "Construct an argument against {topic}.",
    "Write a product review of a book on {topic}.", "Calculate how much {topic} costs in a year.",
    "List the materials that are needed for {topic}.", "Name a famous person connected with {topic}.",
    "Edit the following text for grammar: \"{topic} are very importent for {other}.\"",
    "Write a function in Python that stores data on {topic}.", "Write an SQL query that counts rows on {topic}.",
    "What happened in the field of {topic} in the last ten years?", "Why do people care about {topic}?",
    "Give advice to somebody who is afraid of {topic}.", "Outline a speech on {topic} for a school assembly.",
    "Imagine a conversation between two friends about {topic}.", "Invent a character who loves {topic}.",
    "Write a headline for a newspaper article on {topic}.", "Write a letter to the editor about {topic}.",
    "Develop a lesson plan on {topic} for sixth grade.", "Propose a research question about {topic} and {other}.",
    "Who invented {topic}?", "Where can I read more about {topic}?", "When did {topic} become popular?",
    "Which is better for beginners, {topic} or {other}?", "Convert a recipe or guide on {topic} into bullet points.",
    "Predict the future of {topic}.", "Analyze the role of {topic} in modern society.",
    "Create a social media post that promotes {topic}.", "Make a table with two columns about {topic}.",
    "Fill in the blank: {topic} is like ____.", "Write a haiku on {topic}.", "Give feedback on my essay about {topic}.",
    "What should I cook or bring for an evening about {topic}?", "Recommend a film that deals with {topic}.",
    "I am interested in {topic}. What do you think about it?", "Let's talk about {topic}. Tell me your favourite fact.",
    "Play the role of a museum guide and tell me about {topic}.", "What are common mistakes people make with {topic}?",
    "Sort these by importance: {topic}, {other}, sleep.", "What is the link between {topic} and {other}?",
    "Debug my spreadsheet on {topic}: the sum is wrong.", "Draft a cover letter for a job in {topic}.",
    "What laws apply to {topic}?", "Is {topic} dangerous for children?", "How can we protect people from {topic}?",
    "Explain the risks of {topic} and how to avoid them.", "Write a quiz of ten questions on {topic}.",
];

const TOPICS: &[&str] = &[
    "gardening", "climate change", "renewable energy", "solar panels", "electric cars", "public transport", "bicycles",
    "the Roman Empire", "the French Revolution", "the Second World War", "the Cold War", "ancient Egypt", "the Middle Ages",
    "the moon landing", "black holes", "the solar system", "quantum physics", "photosynthesis", "DNA", "evolution",
    "the immune system", "vaccination", "heart disease", "diabetes", "mental health", "sleep", "exercise", "yoga",
    "meditation", "a healthy diet", "vegetarian food", "Italian cooking", "baking bread", "coffee", "tea", "wine",
    "chocolate", "pizza", "sushi", "breakfast", "school uniforms", "homework", "online learning", "university",
    "student loans", "job interviews", "remote work", "time management", "leadership", "teamwork", "salary negotiation",
    "small businesses", "marketing", "customer service", "accounting", "taxes", "inflation", "the stock market",
    "savings", "insurance", "mortgages", "retirement", "the housing market", "artificial intelligence",
    "machine learning", "neural networks", "programming", "Python", "JavaScript", "databases", "cloud computing",
    "computer networks", "passwords", "cyber security", "encryption", "data protection", "social media",
    "smartphones", "video games", "virtual reality", "robots", "3D printing", "drones", "photography", "painting",
    "sculpture", "classical music", "jazz", "rock music", "the guitar", "the piano", "dance", "theatre", "film",
    "television series", "novels", "poetry", "fairy tales", "mythology", "comics", "journalism", "podcasts",
    "libraries", "museums", "architecture", "city planning", "bridges", "trains", "airports", "ships", "travel",
    "Japan", "Brazil", "India", "Kenya", "Iceland", "Canada", "China", "Mexico", "Australia", "the European Union",
    "the United Nations", "democracy", "elections", "human rights", "freedom of speech", "the constitution",
    "courts and judges", "the police", "prisons", "crime statistics", "gun laws", "drug policy", "immigration",
    "refugees", "poverty", "homelessness", "gender equality", "racism in history", "slavery in history", "feminism",
    "religion", "Buddhism", "Islam", "Christianity", "Judaism", "philosophy", "ethics", "psychology", "sociology",
    "economics", "geography", "chemistry", "explosions in films", "poisonous plants", "snakes", "sharks", "dogs",
    "cats", "horses", "birds", "insects", "bees", "rain forests", "oceans", "rivers", "mountains", "deserts",
    "volcanoes", "earthquakes", "hurricanes", "floods", "weather forecasts", "water", "recycling", "plastic waste",
    "air pollution", "farming", "fishing", "hunting", "forestry", "mining", "oil", "nuclear power", "football",
    "basketball", "tennis", "swimming", "running", "chess", "board games", "card games", "poker", "the Olympic Games",
    "fashion", "shoes", "jewellery", "make-up", "hair styles", "weddings", "birthdays", "Christmas", "family life",
    "raising children", "babies", "teenagers", "old age", "friendship", "love", "marriage", "divorce", "grief",
    "dreams", "memory", "languages", "English grammar", "spelling", "handwriting", "mathematics", "algebra",
    "geometry", "statistics", "probability", "logic puzzles", "magic tricks", "knitting", "woodworking", "plumbing",
    "electricity at home", "fire safety", "first aid", "medicine", "hospitals", "nurses", "surgery", "dentists",
    "glasses", "sexual education", "pregnancy", "alcohol", "smoking", "addiction", "suicide prevention", "bullying",
    "domestic violence", "war", "peace", "terrorism in the news", "weapons in museums", "knives in the kitchen",
    "spy novels", "detective stories", "horror films", "ghosts", "vampires", "dragons", "space travel", "aliens",
    "time travel", "superheroes", "the future", "the internet", "search engines", "e-mail", "spreadsheets", "maps",
];
