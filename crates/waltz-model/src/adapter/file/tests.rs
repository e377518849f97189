use std::collections::HashMap;
use std::sync::LazyLock;

use proptest::prelude::*;

use ::safetensors::Dtype;

use super::*;
use crate::tiny::Tiny;
use crate::train::tests::adapter_file;

static FILE: LazyLock<AdapterFile> = LazyLock::new(|| with_heads(adapter_file(3)));
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| written(&FILE));

fn shape() -> Shape {
    Shape::from_gguf(&Tiny::new().gguf()).unwrap()
}

/// The same file with two heads.
fn with_heads(file: AdapterFile) -> AdapterFile {
    let AdapterFile { note, layers, .. } = file;
    let names = vec!["prompt_harm".to_owned(), "refusal".to_owned()];
    let config = HeadsConfig { names, pooling: Pooling::Last };
    let heads = (config, (0..128).map(|index| index as f32).collect(), vec![0.5, -0.5]);
    AdapterFile::new(&shape(), (note.lora, layers), Some(heads), note.origin, 7)
}

fn written(file: &AdapterFile) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.safetensors");
    file.write(&path, &shape()).unwrap();
    std::fs::read(path).unwrap()
}

/// Reads bytes as a file; an error names it.
fn read(bytes: &[u8]) -> Result<AdapterFile, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.safetensors");
    std::fs::write(&path, bytes).unwrap();
    AdapterFile::read(&path, &shape(), &FILE.note.origin.base).map_err(|error| {
        let message = error.to_string();
        assert!(message.contains("some.safetensors"), "{message} names the file");
        message
    })
}

/// A file with other tensors or another note, written by the crate that the format comes from.
fn forged(
    note: &AdapterNote,
    change: impl FnOnce(&mut HashMap<String, (Dtype, Vec<usize>, Vec<u8>)>),
) -> Vec<u8> {
    let mut tensors: HashMap<_, _> = FILE
        .tensors(&shape())
        .into_iter()
        .map(|(name, size, bytes)| (name, (Dtype::F32, size, bytes)))
        .collect();
    change(&mut tensors);
    let views: HashMap<_, _> = tensors
        .iter()
        .map(|(name, (kind, size, bytes))| (name, TensorView::new(*kind, size.clone(), bytes).unwrap()))
        .collect();
    let notes = HashMap::from([(NOTE.to_owned(), serde_json::to_string(note).unwrap())]);
    serialize(views, Some(notes)).unwrap()
}

#[test]
fn a_file_is_read_as_it_was_written_and_always_has_the_same_bytes() {
    assert_eq!(read(&BYTES).unwrap(), *FILE);
    assert_eq!(written(&FILE), *BYTES);
    let AdapterNote { lora, origin, steps, .. } = FILE.note();
    assert_eq!((lora.unwrap().rank, origin.seed, origin.data.as_str(), *steps), (4, 3, "noise", 7));
    let without = adapter_file(3);
    assert_eq!(read(&written(&without)).unwrap(), without);
    assert_ne!(without.note.content, FILE.note.content);
    let names = safetensors::SafeTensors::deserialize(&BYTES).unwrap();
    assert_eq!(names.tensor("blk.1.attn_k.lora_b").unwrap().shape(), [32, 4]);
    assert_eq!(names.tensor("blk.0.ffn_down.lora_a").unwrap().shape(), [4, 96]);
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F70_an_adapter_that_is_damaged_or_of_another_base_is_refused() {
    let refusal = |bytes: &[u8], expected: &str| {
        let error = read(bytes).unwrap_err();
        assert!(error.contains(expected), "{error} has no `{expected}`");
    };
    for length in (0..BYTES.len()).step_by(101) {
        read(&BYTES[..length]).unwrap_err();
    }
    let note = || FILE.note.clone();
    let mut other = note();
    other.origin.base = "1".repeat(64);
    let both = format!("expected SHA-256 {}, found SHA-256 {}", "1".repeat(64), FILE.note.origin.base);
    refusal(&forged(&other, |_| ()), &both);
    refusal(&forged(&AdapterNote { steps: 8, ..note() }, |_| ()), "SHA-256");
    refusal(&forged(&AdapterNote { version: 2, ..note() }, |_| ()), "version 2; expected 1");
    refusal(&forged(&AdapterNote { lora: None, heads: None, ..note() }, |_| ()), "neither");
    for (rank, expected) in
        [(0, "its rank is 0"), (1 << 40, "its rank is 1099511627776"), (8, "expected F32 [8, 64]")]
    {
        let lora = Some(LoraConfig { rank, alpha: 6.0 });
        refusal(&forged(&AdapterNote { lora, ..note() }, |_| ()), expected);
    }
    // Finite, but infinite once it is multiplied.
    for alpha in [3e38, -3e38] {
        let lora = Some(LoraConfig { rank: 4, alpha });
        refusal(&forged(&AdapterNote { lora, ..note() }, |_| ()), "alpha up to 1000000");
    }
    let heads = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Some(HeadsConfig { names, pooling: Pooling::Last })
    };
    refusal(&forged(&AdapterNote { heads: heads(&[]), ..note() }, |_| ()), "without heads");
    refusal(
        &forged(&AdapterNote { heads: heads(&["a", "a"]), ..note() }, |_| ()),
        "two heads are called `a`",
    );
    let lora = Some(LoraConfig { rank: 4, alpha: 7.0 });
    refusal(&forged(&AdapterNote { lora, ..note() }, |_| ()), "SHA-256");
    let name = "blk.0.attn_q.lora_a";
    let number = |value: f32| {
        forged(&note(), |tensors| {
            tensors.get_mut(name).unwrap().2[..4].copy_from_slice(&value.to_le_bytes());
        })
    };
    refusal(&number(f32::NAN), "`blk.0.attn_q.lora_a` holds numbers that are not finite");
    refusal(&number(f32::INFINITY), "not finite");
    refusal(&number(1e10), "`blk.0.attn_q.lora_a` holds numbers larger than 1000000");
    refusal(&number(0.125), "SHA-256");
    refusal(
        &forged(&note(), |tensors| tensors.get_mut(name).unwrap().1 = vec![64, 4]),
        "expected F32 [4, 64]",
    );
    refusal(
        &forged(&note(), |tensors| {
            let (kind, size, _) = tensors.get_mut(name).unwrap();
            (*kind, *size) = (Dtype::F16, vec![8, 64]);
        }),
        "is F16",
    );
    refusal(&forged(&note(), |tensors| drop(tensors.remove(name))), "no tensor `blk.0.attn_q.lora_a`");
    refusal(
        &forged(&note(), |tensors| {
            tensors.insert("more".to_owned(), (Dtype::F32, vec![1], vec![0; 4]));
        }),
        "it has 31 tensors; expected 30",
    );
    refusal(
        &serialize([("a", TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap())], None).unwrap(),
        "no note",
    );
    read(&forged(&note(), |_| ())).unwrap();
}

#[test]
fn a_file_is_written_for_its_own_shape_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.safetensors");
    let others = [
        Shape { layers: 3, ..shape() },
        Shape { layers: 1, ..shape() },
        Shape { width: 128, ..shape() },
        Shape { hidden: 64, ..shape() },
    ];
    for other in others {
        let error = FILE.write(&path, &other).unwrap_err().to_string();
        assert!(error.contains("another shape") && !path.exists(), "{error}");
    }
    let AdapterFile { note, heads, .. } = FILE.clone();
    let heads = heads.map(|(weights, bias)| (note.heads.clone().unwrap(), weights, bias));
    let alone = AdapterFile::new(&shape(), (None, Vec::new()), heads, note.origin, 1);
    alone.write(&path, &Shape { width: 32, ..shape() }).unwrap_err();
    alone.write(&path, &shape()).unwrap();
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F73_an_adapter_is_written_as_a_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.safetensors");
    FILE.write(&path, &shape()).unwrap();
    let newer = with_heads(adapter_file(4));
    // While it is replaced, whoever opens it finds the one or the other.
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..50 {
                let found = AdapterFile::read(&path, &shape(), &FILE.note.origin.base).unwrap();
                assert!(found == *FILE || found == newer);
            }
        });
        while !reader.is_finished() {
            newer.write(&path, &shape()).unwrap();
            FILE.write(&path, &shape()).unwrap();
        }
        reader.join().unwrap();
    });
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

proptest! {
    /// Whatever the damage, what is read is an error or what was written.
    #[test]
    fn no_damage_goes_unseen(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), early in any::<bool>()) {
        let mut bytes = BYTES.clone();
        for (at, byte) in edits {
            // Half of the time only the table and the note are hit: they are a tenth of the file.
            let at = at.index(if early { bytes.len() / 10 } else { bytes.len() });
            bytes[at] = byte;
        }
        if let Ok(found) = read(&bytes) {
            prop_assert_eq!(found, FILE.clone());
        }
    }
}
