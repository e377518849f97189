//! What a training step needs from the machine that computes it.
//!
//! The network (`network.rs`) is written once over this trait. The CPU keeps everything as f32 (or f64, to check
//! gradients); CUDA computes in bf16 and keeps masters, gradients and moments as f32. Matrices lie row by row.
//! Operations are queued in order; [`Device::read`] and [`Device::read_floats`] wait for what came before.

use crate::Error;

/// A rectangle of a buffer: `rows` times `columns` numbers, the rows `stride` apart, from `first` on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Where the first number lies.
    pub first: usize,
    /// How many rows there are.
    pub rows: usize,
    /// How many numbers of a row are meant.
    pub columns: usize,
    /// How far rows are apart.
    pub stride: usize,
}

impl Grid {
    /// A whole matrix.
    pub fn whole(rows: usize, columns: usize) -> Self {
        Self { first: 0, rows, columns, stride: columns }
    }

    /// Some columns of all rows.
    pub fn columns(self, first: usize, columns: usize) -> Self {
        Self { first: self.first + first, columns, ..self }
    }

    /// Some rows.
    pub fn rows(self, first: usize, rows: usize) -> Self {
        Self { first: self.first + first * self.stride, rows, ..self }
    }
}

/// Which of the two factors of a product is transposed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// `left (m, k) x right (k, n)`: gradients of inputs.
    Plain,
    /// `left (m, k) x right (n, k)`, transposed: a linear layer.
    RightTransposed,
    /// `left (k, m)`, transposed, `x right (k, n)`: gradients of weights.
    LeftTransposed,
}

/// Where the sequences of a packed batch lie: token rows `starts[i]..starts[i + 1]` are one sequence, which
/// attends to itself alone and whose positions count from 0. The first number is 0, the last one the row count.
pub type Starts = [usize];

/// Sizes of attention. A row of queries, keys and values has `(heads + 2 * kv_heads) * head` numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; each serves `heads / kv_heads` heads.
    pub kv_heads: usize,
    /// Numbers of a head.
    pub head: usize,
}

/// Which tokens of its sequence a token sees, and how it knows their places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sight {
    /// Those up to itself. Queries and keys are turned by their positions, in the serving engine's layout: numbers
    /// `2i` and `2i + 1` of a head turn together.
    Past {
        /// Base of the angles.
        rope_base: f32,
    },
    /// All of them; places are part of what the rows were made of.
    All,
}

/// One step of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub rate: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Decay of the weights, apart from the gradient.
    pub decay: f32,
    /// The number of this step, from 1: corrects the moments' bias.
    pub step: u32,
    /// What the gradient is multiplied by first: the clip and the mean over what was accumulated.
    pub scale: f32,
}

/// A trainable tensor, as the optimiser sees it.
pub struct Moments<'a, D: Device> {
    /// The weights in full precision, where the device [rounds](Device::rounds); without it the weights below are
    /// updated themselves, which saves a copy of the model.
    pub master: Option<&'a mut D::Floats>,
    /// The weights as the network computes with them; written after the update.
    pub weights: &'a mut D::Numbers,
    /// The gradient; set to zero after the update.
    pub gradient: &'a mut D::Floats,
    /// Running mean of the gradient.
    pub first: &'a mut D::Floats,
    /// Running mean of its square.
    pub second: &'a mut D::Floats,
}

/// Memory and arithmetic of one machine.
pub trait Device {
    /// Activations, their gradients, and the weights that products use.
    type Numbers;
    /// Masters, gradients of weights, moments, log-probabilities: always full precision.
    type Floats;
    /// What attention keeps for its way back.
    type Attended;

    /// Whether [`Self::Numbers`] are less than full precision, so that a trained weight needs a master beside it.
    fn rounds(&self) -> bool;
    /// A buffer of zeros.
    fn numbers(&self, length: usize) -> Result<Self::Numbers, Error>;
    /// A buffer that the next operation overwrites as a whole; what it holds before then is not said.
    fn unset(&self, length: usize) -> Result<Self::Numbers, Error> {
        self.numbers(length)
    }
    /// A buffer of zeros.
    fn floats(&self, length: usize) -> Result<Self::Floats, Error>;
    /// Puts values on the device, rounded to what it computes with.
    fn load(&self, values: &[f32]) -> Result<Self::Numbers, Error>;
    /// Puts values on the device as they are.
    fn load_floats(&self, values: &[f32]) -> Result<Self::Floats, Error>;
    /// Waits and copies to the host.
    fn read(&self, numbers: &Self::Numbers) -> Result<Vec<f32>, Error>;
    /// Waits and copies to the host.
    fn read_floats(&self, floats: &Self::Floats) -> Result<Vec<f32>, Error>;
    /// Sets a buffer to zero, without taking memory.
    fn clear(&self, floats: &mut Self::Floats) -> Result<(), Error>;
    /// Copies `from` to `to`, of one length.
    fn copy(&self, from: &Self::Numbers, to: &mut Self::Numbers) -> Result<(), Error>;

    /// `output = keep * output + scale * left x right`; `keep` is 0 or 1, and 0 overwrites whatever was there.
    fn multiply(
        &self,
        form: Form,
        scale: f32,
        left: (&Self::Numbers, Grid),
        right: (&Self::Numbers, Grid),
        keep: f32,
        output: (&mut Self::Numbers, Grid),
    ) -> Result<(), Error>;
    /// `output += scale * left x right`, summed in full precision: gradients of weights.
    fn accumulate(
        &self,
        form: Form,
        scale: f32,
        left: (&Self::Numbers, Grid),
        right: (&Self::Numbers, Grid),
        output: (&mut Self::Floats, Grid),
    ) -> Result<(), Error>;

    /// Copies the named rows of `from` (of `width` numbers) to `output`, one after the other: rows of a state, or a
    /// table's by token.
    fn gather(
        &self,
        from: &Self::Numbers,
        width: usize,
        rows: &[u32],
        output: &mut Self::Numbers,
    ) -> Result<(), Error>;
    /// The way back from a table: adds each row of `gradient` to its token's row of `table`, in the order of the tokens.
    fn embed_back(
        &self,
        gradient: &Self::Numbers,
        width: usize,
        tokens: &[u32],
        table: &mut Self::Floats,
    ) -> Result<(), Error>;
    /// The way back from a state: adds each row of `from` to its named row of `output`; the rows are distinct.
    fn scatter(
        &self,
        from: &Self::Numbers,
        width: usize,
        rows: &[u32],
        output: &mut Self::Numbers,
    ) -> Result<(), Error>;

    /// `output = input / rms(input) * gain`, row by row; `gain.len()` numbers a row.
    fn norm(
        &self,
        input: &Self::Numbers,
        gain: (&Self::Numbers, usize),
        epsilon: f32,
        output: &mut Self::Numbers,
    ) -> Result<(), Error>;
    /// The way back: adds to the input's gradient, and to the gain's where one is asked for.
    fn norm_back(
        &self,
        input: &Self::Numbers,
        gain: (&Self::Numbers, usize),
        epsilon: f32,
        gradient: &Self::Numbers,
        to_input: &mut Self::Numbers,
        to_gain: Option<&mut Self::Floats>,
    ) -> Result<(), Error>;

    /// `output = (input - mean) / deviation * gain + bias`, row by row; `width` numbers a row.
    fn layer_norm(
        &self,
        input: &Self::Numbers,
        norm: LayerNorm<'_, Self>,
        output: &mut Self::Numbers,
    ) -> Result<(), Error>
    where
        Self: Sized;
    /// The way back: overwrites the input's gradient, and adds to those of gain and bias where they are asked for.
    fn layer_norm_back(
        &self,
        input: &Self::Numbers,
        norm: LayerNorm<'_, Self>,
        gradient: &Self::Numbers,
        to_input: &mut Self::Numbers,
        to_norm: Option<(&mut Self::Floats, &mut Self::Floats)>,
    ) -> Result<(), Error>
    where
        Self: Sized;

    /// Attention within each sequence, heads mixed into `output` (rows, heads x head). `rows` holds queries, keys and
    /// values of every token.
    fn attend(
        &self,
        shape: AttentionShape,
        sight: Sight,
        starts: &Starts,
        rows: &Self::Numbers,
        output: &mut Self::Numbers,
    ) -> Result<Self::Attended, Error>;
    /// The way back: overwrites `to_rows` with the gradient of what `attend` was given.
    #[expect(
        clippy::too_many_arguments,
        reason = "what attention was given, what it kept and what comes back"
    )]
    fn attend_back(
        &self,
        shape: AttentionShape,
        sight: Sight,
        starts: &Starts,
        rows: &Self::Numbers,
        output: &Self::Numbers,
        kept: &Self::Attended,
        gradient: &Self::Numbers,
        to_rows: &mut Self::Numbers,
    ) -> Result<(), Error>;

    /// `output = silu(gate) * up`; a row of `both` is gate then up, `hidden` numbers each.
    fn gate(&self, both: &Self::Numbers, hidden: usize, output: &mut Self::Numbers) -> Result<(), Error>;
    /// The way back: overwrites `to_both`.
    fn gate_back(
        &self,
        both: &Self::Numbers,
        hidden: usize,
        gradient: &Self::Numbers,
        to_both: &mut Self::Numbers,
    ) -> Result<(), Error>;

    /// `output = gelu(input)`, the exact one: `x * (1 + erf(x / sqrt(2))) / 2`.
    fn gelu(&self, input: &Self::Numbers, output: &mut Self::Numbers) -> Result<(), Error>;
    /// The way back: overwrites `to_input`.
    fn gelu_back(
        &self,
        input: &Self::Numbers,
        gradient: &Self::Numbers,
        to_input: &mut Self::Numbers,
    ) -> Result<(), Error>;

    /// Log-probability of each row's target under `softmax(states x table^T)`. With `slopes` (the derivative of the
    /// loss by each log-probability) it also adds to the gradient of the states, and of the table where asked. Works
    /// in pieces of rows, so that the logits of a batch never exist at once.
    fn log_probabilities(&self, head: LogProbabilities<'_, Self>) -> Result<Vec<f64>, Error>
    where
        Self: Sized;

    /// The sum of squares of all buffers, in a fixed order; one wait for all of them.
    fn square_sum(&self, floats: &[&Self::Floats]) -> Result<f64, Error>;
    /// One step of AdamW over one tensor, in one pass.
    fn update(&self, step: &AdamW, tensor: Moments<'_, Self>) -> Result<(), Error>
    where
        Self: Sized;
}

/// What [`Device::layer_norm`] does to a row.
pub struct LayerNorm<'a, D: Device> {
    /// Multiplied after it.
    pub gain: &'a D::Numbers,
    /// Added after it; the way back does not read it.
    pub bias: &'a D::Numbers,
    /// Numbers of a row, of the gain and of the bias.
    pub width: usize,
    /// Added to the variance before the root.
    pub epsilon: f32,
}

/// What [`Device::log_probabilities`] works on.
pub struct LogProbabilities<'a, D: Device> {
    /// One row of `width` numbers per target, after the last norm.
    pub states: &'a D::Numbers,
    /// Numbers of a row.
    pub width: usize,
    /// (vocabulary, width).
    pub table: &'a D::Numbers,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// The token that follows each row.
    pub targets: &'a [u32],
    /// For the way back.
    pub back: Option<LossBack<'a, D>>,
}

/// Where gradients of a loss over log-probabilities go.
pub struct LossBack<'a, D: Device> {
    /// Derivative of the loss by each log-probability.
    pub slopes: &'a [f32],
    /// Added to: the states' gradient.
    pub to_states: &'a mut D::Numbers,
    /// Added to: the table's gradient, where it trains.
    pub to_table: Option<&'a mut D::Floats>,
}
