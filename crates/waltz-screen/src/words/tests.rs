use super::*;

fn view(text: &str) -> String {
    split(text, false).text
}

#[test]
fn words_have_one_blank_around_them() {
    assert_eq!(view("how  to--go,\nthere?"), " how to go there ");
    assert_eq!(view(""), "");
    assert_eq!(view("?! ..."), "");
}

#[test]
fn apostrophes_join_and_possessives_vanish() {
    assert_eq!(view("i can't open my ex's phone"), " i cant open my ex phone ");
    assert_eq!(view("the 'quoted' word"), " the quoted word ");
}

#[test]
fn sentences_are_counted() {
    let words = split("one two. three 3.14 four! five\n\nsix", false).words;
    let sentences: Vec<u32> = words.iter().map(|word| word.sentence).collect();
    assert_eq!(sentences, [0, 0, 1, 1, 1, 1, 2, 3]);
}

#[test]
fn ideographs_are_words_of_their_own() {
    assert_eq!(view("制造炸弹 now"), " 制 造 炸 弹 now ");
}

#[test]
fn words_know_their_bytes() {
    let text = "my ex's phone";
    let words = split(text, false).words;
    assert_eq!(&text[words[1].start as usize..words[1].end as usize], "ex's");
}

#[test]
fn odd_spellings_are_read_in_further_views() {
    let views = |text: &str| {
        respelt(text, &split(text, false)).into_iter().map(|view| view.text).collect::<Vec<String>>()
    };
    assert_eq!(views("h4ck it"), [" hack it "]);
    assert_eq!(views("k1ll it"), [" kill it ", " klll it "]);
    assert_eq!(views("h a c k it"), [" hack it "]);
    assert_eq!(views("a b o m b"), [" abomb ", " a bomb "]);
    assert_eq!(views("h.a.c.k it"), [" hack it "]);
    assert_eq!(views("p@$$word"), [" password "]);
    assert_eq!(views("h 4 c k it"), [" hack it "]);
    assert!(views("items 1 2 3 4 and sha256").is_empty());
}

#[test]
fn only_odd_texts_get_further_views() {
    assert!(!split("a plain text, with 3 numbers in 2024", false).odd);
    assert!(split("h4ck", false).odd);
    assert!(split("h a c k", false).odd);
}
