//! Every operation on the GPU against the same one on the CPU in f32.
//!
//! Each operation is written once for any device. Its inputs are numbers that bf16 holds exactly, and buffers that
//! must be overwritten begin as "not a number". On the GPU it runs twice, which must give the same bits.

use std::error::Error;

use waltz_model::Threads;
use waltz_model::train::cuda::Cuda;
use waltz_model::train::{
    AdamW, AttentionShape, Cpu, Device, Form, Grid, LayerNorm, LogProbabilities, LossBack, Moments, Sight,
};

use crate::{distance, noise};

type Found = Result<Vec<Vec<f32>>, waltz_model::Error>;

/// What bf16 may lose in one rounding of a result, and where several follow each other.
const ROUNDED: f64 = 2.5e-3;
const ROUNDED_OFTEN: f64 = 8e-3;
/// f32 in another order.
const REORDERED: f64 = 1e-5;
const EXACT: f64 = 0.0;

const PAST: Sight = Sight::Past { rope_base: 1e5 };

/// Runs all checks and prints how far each result is from the CPU's.
pub(crate) fn check(cuda: &Cuda) -> Result<(), Box<dyn Error>> {
    println!("{}", cuda.name()?);
    let cpu = Cpu::<f32>::new(Threads::for_this_machine());
    let mut wrong = 0;
    macro_rules! hold {
        ($name:ident, $tolerances:expr) => {
            wrong += compare(
                stringify!($name),
                &$tolerances,
                [&$name(cuda)?, &$name(cuda)?],
                &$name::<Cpu<f32>>(&cpu)?,
            );
        };
    }
    hold!(buffers, [EXACT, EXACT]);
    hold!(products, [ROUNDED; 6]);
    hold!(sums_of_products, [REORDERED; 3]);
    hold!(rows, [EXACT, EXACT, ROUNDED]);
    hold!(embedding_back, [EXACT]);
    hold!(norms, [ROUNDED, ROUNDED, ROUNDED, REORDERED]);
    hold!(attention, [ROUNDED_OFTEN; 4]);
    hold!(attention_of_long_sequences, [ROUNDED_OFTEN; 4]);
    hold!(attention_to_all, [ROUNDED_OFTEN; 4]);
    hold!(gates, [ROUNDED, ROUNDED]);
    hold!(layer_norms, [ROUNDED, ROUNDED, ROUNDED, REORDERED, REORDERED]);
    hold!(bends, [ROUNDED, ROUNDED]);
    // The table's gradient is a sum in f32 of slopes that were rounded once.
    hold!(losses, [REORDERED, ROUNDED, ROUNDED, ROUNDED]);
    hold!(squares, [1e-7]);
    hold!(updates, [REORDERED, ROUNDED, EXACT, REORDERED, REORDERED]);
    match wrong {
        0 => Ok(()),
        wrong => Err(format!("{wrong} results differ").into()),
    }
}

fn compare(name: &str, tolerances: &[f64], found: [&[Vec<f32>]; 2], expected: &[Vec<f32>]) -> usize {
    let mut wrong = usize::from(tolerances.len() != expected.len() || found[0].len() != expected.len());
    for (index, (expected, tolerance)) in expected.iter().zip(tolerances).enumerate() {
        let apart = distance(&found[0][index], expected);
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let again = bits(&found[0][index]) == bits(&found[1][index]);
        // Written so that a distance that is not a number is wrong.
        let good = apart <= *tolerance && again;
        wrong += usize::from(!good);
        let word = if good { "ok" } else { "WRONG" };
        println!("{word:5} {name} {index}: {apart:.1e} of {tolerance:.1e}, the same bits again: {again}");
    }
    wrong
}

fn buffers<D: Device>(device: &D) -> Found {
    let from = device.load(&noise(1003, 1))?;
    let mut copied = device.load(&noise(1003, 2))?;
    device.copy(&from, &mut copied)?;
    let mut cleared = device.load_floats(&noise(1003, 3))?;
    device.clear(&mut cleared)?;
    Ok(vec![device.read(&copied)?, device.read_floats(&cleared)?])
}

/// Sizes of both factors for a product of (70, 56) over 40 steps.
fn factors(form: Form) -> [(usize, usize); 2] {
    match form {
        Form::Plain => [(70, 40), (40, 56)],
        Form::RightTransposed => [(70, 40), (56, 40)],
        Form::LeftTransposed => [(40, 70), (40, 56)],
    }
}

/// Parts of larger matrices, kept and overwritten.
fn products<D: Device>(device: &D) -> Found {
    let mut found = Vec::new();
    for form in [Form::Plain, Form::RightTransposed, Form::LeftTransposed] {
        let [(rows, columns), (more_rows, more_columns)] = factors(form);
        let left = device.load(&noise(rows * (columns + 8), 5))?;
        let right = device.load(&noise((more_rows + 3) * more_columns, 6))?;
        let left = (&left, Grid::whole(rows, columns + 8).columns(8, columns));
        let right = (&right, Grid::whole(more_rows + 3, more_columns).rows(3, more_rows));
        let mut onto = device.load(&noise(70 * 80, 7))?;
        let part = Grid::whole(70, 80).columns(16, 56);
        device.multiply(form, 0.5, left, right, 1.0, (&mut onto, part))?;
        found.push(device.read(&onto)?);
        let mut over = device.load(&[f32::NAN; 70 * 56])?;
        device.multiply(form, 2.0, left, right, 0.0, (&mut over, Grid::whole(70, 56)))?;
        found.push(device.read(&over)?);
    }
    Ok(found)
}

fn sums_of_products<D: Device>(device: &D) -> Found {
    let mut found = Vec::new();
    for form in [Form::Plain, Form::RightTransposed, Form::LeftTransposed] {
        let [(rows, columns), (more_rows, more_columns)] = factors(form);
        let left = device.load(&noise(rows * columns, 8))?;
        let right = device.load(&noise(more_rows * more_columns, 9))?;
        let mut sum = device.load_floats(&noise(71 * 56, 10))?;
        let factors = [Grid::whole(rows, columns), Grid::whole(more_rows, more_columns)];
        let part = Grid::whole(71, 56).rows(1, 70);
        device.accumulate(form, 0.25, (&left, factors[0]), (&right, factors[1]), (&mut sum, part))?;
        found.push(device.read_floats(&sum)?);
    }
    Ok(found)
}

/// Tokens of which some occur often.
fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|index| index * index % 37).collect()
}

fn rows<D: Device>(device: &D) -> Found {
    let table = device.load(&noise(40 * 64, 11))?;
    let mut embedded = device.load(&[f32::NAN; 100 * 64])?;
    device.gather(&table, 64, &tokens(100), &mut embedded)?;
    let picked = [7, 0, 39, 20, 21];
    let mut gathered = device.load(&[f32::NAN; 5 * 64])?;
    device.gather(&table, 64, &picked, &mut gathered)?;
    let mut scattered = device.load(&noise(40 * 64, 12))?;
    device.scatter(&gathered, 64, &picked, &mut scattered)?;
    Ok(vec![device.read(&embedded)?, device.read(&gathered)?, device.read(&scattered)?])
}

fn embedding_back<D: Device>(device: &D) -> Found {
    let gradient = device.load(&noise(3000 * 64, 13))?;
    let mut table = device.load_floats(&noise(40 * 64, 14))?;
    device.embed_back(&gradient, 64, &tokens(3000), &mut table)?;
    Ok(vec![device.read_floats(&table)?])
}

fn norms<D: Device>(device: &D) -> Found {
    let (rows, width) = (3001, 576);
    let input = device.load(&noise(rows * width, 15))?;
    let gain = device.load(&noise(width, 16))?;
    let gradient = device.load(&noise(rows * width, 17))?;
    let mut output = device.load(&vec![f32::NAN; rows * width])?;
    device.norm(&input, (&gain, width), 1e-5, &mut output)?;
    let mut to_input = device.load(&noise(rows * width, 18))?;
    device.norm_back(&input, (&gain, width), 1e-5, &gradient, &mut to_input, None)?;
    let mut to_input_too = device.load(&noise(rows * width, 19))?;
    let mut to_gain = device.load_floats(&noise(width, 20))?;
    device.norm_back(&input, (&gain, width), 1e-5, &gradient, &mut to_input_too, Some(&mut to_gain))?;
    Ok(vec![
        device.read(&output)?,
        device.read(&to_input)?,
        device.read(&to_input_too)?,
        device.read_floats(&to_gain)?,
    ])
}

fn attention<D: Device>(device: &D) -> Found {
    let shape = AttentionShape { heads: 6, kv_heads: 2, head: 64 };
    attended(device, shape, PAST, &[0, 1, 64, 129, 130, 195, 400])
}

fn attention_of_long_sequences<D: Device>(device: &D) -> Found {
    attended(device, AttentionShape { heads: 9, kv_heads: 3, head: 64 }, PAST, &[0, 512, 1200])
}

fn attention_to_all<D: Device>(device: &D) -> Found {
    let shape = AttentionShape { heads: 12, kv_heads: 12, head: 32 };
    attended(device, shape, Sight::All, &[0, 1, 64, 129, 130, 195, 400, 912])
}

/// What attention gives, and the gradients of queries, of keys and of values.
fn attended<D: Device>(device: &D, shape: AttentionShape, sight: Sight, starts: &[usize]) -> Found {
    let rows = starts.last().copied().unwrap_or(0);
    let AttentionShape { heads, kv_heads, head } = shape;
    let columns = (heads + 2 * kv_heads) * head;
    let given = device.load(&noise(rows * columns, 21))?;
    let gradient = device.load(&noise(rows * heads * head, 22))?;
    let mut output = device.load(&vec![f32::NAN; rows * heads * head])?;
    let kept = device.attend(shape, sight, starts, &given, &mut output)?;
    let mut back = device.load(&vec![f32::NAN; rows * columns])?;
    device.attend_back(shape, sight, starts, &given, &output, &kept, &gradient, &mut back)?;
    let back = device.read(&back)?;
    let part = |first: usize, last: usize| {
        back.chunks_exact(columns).flat_map(|row| row[first * head..last * head].to_vec()).collect()
    };
    let all = heads + 2 * kv_heads;
    Ok(vec![
        device.read(&output)?,
        part(0, heads),
        part(heads, heads + kv_heads),
        part(heads + kv_heads, all),
    ])
}

fn gates<D: Device>(device: &D) -> Found {
    let both: Vec<f32> = noise(33 * 2 * 96, 23).iter().map(|value| value * 8.0).collect();
    let both = device.load(&both)?;
    let gradient = device.load(&noise(33 * 96, 24))?;
    let mut output = device.load(&[f32::NAN; 33 * 96])?;
    device.gate(&both, 96, &mut output)?;
    let mut back = device.load(&[f32::NAN; 33 * 2 * 96])?;
    device.gate_back(&both, 96, &gradient, &mut back)?;
    Ok(vec![device.read(&output)?, device.read(&back)?])
}

fn layer_norms<D: Device>(device: &D) -> Found {
    let (rows, width) = (3001, 384);
    let input = device.load(&noise(rows * width, 50))?;
    let (gain, bias) = (device.load(&noise(width, 51))?, device.load(&noise(width, 52))?);
    let gradient = device.load(&noise(rows * width, 53))?;
    let norm = || LayerNorm { gain: &gain, bias: &bias, width, epsilon: 1e-12 };
    let nothing = vec![f32::NAN; rows * width];
    let [mut output, mut to_input, mut to_input_too] =
        [device.load(&nothing)?, device.load(&nothing)?, device.load(&nothing)?];
    device.layer_norm(&input, norm(), &mut output)?;
    device.layer_norm_back(&input, norm(), &gradient, &mut to_input, None)?;
    let (mut to_gain, mut to_bias) =
        (device.load_floats(&noise(width, 54))?, device.load_floats(&noise(width, 55))?);
    let to_norm = Some((&mut to_gain, &mut to_bias));
    device.layer_norm_back(&input, norm(), &gradient, &mut to_input_too, to_norm)?;
    Ok(vec![
        device.read(&output)?,
        device.read(&to_input)?,
        device.read(&to_input_too)?,
        device.read_floats(&to_gain)?,
        device.read_floats(&to_bias)?,
    ])
}

fn bends<D: Device>(device: &D) -> Found {
    let input: Vec<f32> = noise(33 * 1536, 56).iter().map(|value| value * 8.0).collect();
    let input = device.load(&input)?;
    let gradient = device.load(&noise(33 * 1536, 57))?;
    let mut output = device.load(&[f32::NAN; 33 * 1536])?;
    device.gelu(&input, &mut output)?;
    let mut back = device.load(&[f32::NAN; 33 * 1536])?;
    device.gelu_back(&input, &gradient, &mut back)?;
    Ok(vec![device.read(&output)?, device.read(&back)?])
}

/// More rows than one piece, and a vocabulary that no vector divides.
fn losses<D: Device>(device: &D) -> Found {
    let (rows, width, vocabulary) = (2500, 64, 1003);
    let states = device.load(&noise(rows * width, 25))?;
    let table = device.load(&noise(vocabulary * width, 26))?;
    let targets: Vec<u32> = (0..rows as u32).map(|row| row * 31 % vocabulary as u32).collect();
    let slopes = noise(rows, 27);
    let mut to_states = device.load(&noise(rows * width, 28))?;
    let mut to_states_too = device.load(&noise(rows * width, 29))?;
    let mut to_table = device.load_floats(&noise(vocabulary * width, 30))?;
    let head = |back| LogProbabilities {
        states: &states,
        width,
        table: &table,
        vocabulary,
        targets: &targets,
        back,
    };
    let alone = device.log_probabilities(head(None))?;
    let back = LossBack { slopes: &slopes, to_states: &mut to_states, to_table: None };
    let frozen = device.log_probabilities(head(Some(back)))?;
    let back = LossBack { slopes: &slopes, to_states: &mut to_states_too, to_table: Some(&mut to_table) };
    let trained = device.log_probabilities(head(Some(back)))?;
    // All three ways must give the same bits on one device.
    let same = if alone == frozen && alone == trained { 0.0 } else { f32::NAN };
    let mut found: Vec<f32> = alone.iter().map(|found| *found as f32).collect();
    found.push(same);
    Ok(vec![found, device.read(&to_states)?, device.read(&to_states_too)?, device.read_floats(&to_table)?])
}

fn squares<D: Device>(device: &D) -> Found {
    let (long, short) = (device.load_floats(&noise(1_000_003, 31))?, device.load_floats(&noise(5, 32))?);
    Ok(vec![vec![device.square_sum(&[&long, &short])? as f32]])
}

/// Three steps; results are weights in full precision and rounded, the gradient, and both moments.
fn updates<D: Device>(device: &D) -> Found {
    let length = 10_007;
    let start = noise(length, 33);
    let mut master = device.load_floats(&start)?;
    let mut weights = device.load(&start)?;
    let mut gradient = device.floats(length)?;
    let (mut first, mut second) = (device.floats(length)?, device.floats(length)?);
    for step in 1..=3 {
        gradient = device.load_floats(&noise(length, 40 + u64::from(step)))?;
        let with = AdamW { rate: 1e-2, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, decay: 0.1, step, scale: 0.5 };
        let moments = Moments {
            master: device.rounds().then_some(&mut master),
            weights: &mut weights,
            gradient: &mut gradient,
            first: &mut first,
            second: &mut second,
        };
        device.update(&with, moments)?;
    }
    let full = if device.rounds() { device.read_floats(&master)? } else { device.read(&weights)? };
    Ok(vec![
        full,
        device.read(&weights)?,
        device.read_floats(&gradient)?,
        device.read_floats(&first)?,
        device.read_floats(&second)?,
    ])
}
