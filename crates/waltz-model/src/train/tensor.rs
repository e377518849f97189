//! A tensor of the network on its device, frozen or trained.
//!
//! A frozen tensor has no gradient buffer: nothing can add to it, and products for it are never computed.

use super::{AdamW, Device, Moments};
use crate::Error;

/// Whether weights change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trains {
    /// They stay as they are.
    No,
    /// They have a gradient and change with every step.
    Yes,
    /// Of a network, the matrices of its layers do: embedding and norms stay, so that an adapter can hold the change.
    Layers,
}

/// Weights under one name, (rows, columns); a vector has one row.
pub struct Tensor<D: Device> {
    /// What it is called in files.
    pub(super) name: String,
    /// Rows.
    pub(super) rows: usize,
    /// Numbers of a row.
    pub(super) columns: usize,
    /// What products use.
    pub(super) weights: D::Numbers,
    /// Whether it decays while it trains: matrices do, gains and biases do not.
    decays: bool,
    /// What changes it.
    training: Option<Training<D>>,
}

/// What a trained tensor has beside its weights.
struct Training<D: Device> {
    /// The weights in full precision, where the device rounds.
    master: Option<D::Floats>,
    /// What the way back adds to.
    gradient: D::Floats,
    first: D::Floats,
    second: D::Floats,
}

/// The three parts of a trained tensor that a run needs to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The weights in full precision.
    Weights,
    /// The running mean of the gradient.
    First,
    /// The running mean of its square.
    Second,
}

/// One part of a tensor that is on the device and not yet in its place.
pub(super) enum Loaded<D: Device> {
    /// The weights, and beside them their master where the device rounds.
    Weights(D::Numbers, Option<D::Floats>),
    /// The running mean of the gradient.
    First(D::Floats),
    /// The running mean of its square.
    Second(D::Floats),
}

impl Part {
    /// In the order in which files hold them.
    pub(super) const ALL: [Self; 3] = [Self::Weights, Self::First, Self::Second];
}

impl<D: Device> Tensor<D> {
    /// Puts values (rows, columns) on the device.
    pub(super) fn new(
        device: &D,
        name: String,
        (rows, columns): (usize, usize),
        values: &[f32],
        trains: Trains,
    ) -> Result<Self, Error> {
        fits(&name, rows * columns, values)?;
        let training = match trains {
            Trains::No => None,
            Trains::Yes | Trains::Layers => Some(Training {
                master: device.rounds().then(|| device.load_floats(values)).transpose()?,
                gradient: device.floats(values.len())?,
                first: device.floats(values.len())?,
                second: device.floats(values.len())?,
            }),
        };
        Ok(Self { name, rows, columns, weights: device.load(values)?, decays: true, training })
    }

    /// The same as a gain or a bias.
    pub(super) fn without_decay(self) -> Self {
        Self { decays: false, ..self }
    }

    /// How many numbers it has.
    pub(super) fn length(&self) -> usize {
        self.rows * self.columns
    }

    /// The gradient's buffer, where it trains.
    pub(super) fn gradient_mut(&mut self) -> Option<&mut D::Floats> {
        self.training.as_mut().map(|training| &mut training.gradient)
    }

    /// The weights, and beside them the gradient's buffer where it trains.
    pub(super) fn split(&mut self) -> (&D::Numbers, Option<&mut D::Floats>) {
        (&self.weights, self.training.as_mut().map(|training| &mut training.gradient))
    }

    /// The gradient, where it trains.
    pub(super) fn gradient(&self) -> Option<&D::Floats> {
        self.training.as_ref().map(|training| &training.gradient)
    }

    /// The weights in full precision.
    pub(super) fn values(&self, device: &D) -> Result<Vec<f32>, Error> {
        match self.training.as_ref().and_then(|training| training.master.as_ref()) {
            Some(master) => device.read_floats(master),
            None => device.read(&self.weights),
        }
    }

    /// One part of a trained tensor; nothing of a frozen one.
    pub(super) fn read(&self, device: &D, part: Part) -> Result<Vec<f32>, Error> {
        match (part, &self.training) {
            (_, None) => Ok(Vec::new()),
            (Part::Weights, Some(_)) => self.values(device),
            (Part::First, Some(training)) => device.read_floats(&training.first),
            (Part::Second, Some(training)) => device.read_floats(&training.second),
        }
    }

    /// Puts one part of a trained tensor on the device, beside what is there.
    pub(super) fn load(&self, device: &D, part: Part, values: &[f32]) -> Result<Loaded<D>, Error> {
        fits(&self.name, self.length(), values)?;
        Ok(match part {
            Part::Weights => {
                let master = device.rounds().then(|| device.load_floats(values)).transpose()?;
                Loaded::Weights(device.load(values)?, master)
            }
            Part::First => Loaded::First(device.load_floats(values)?),
            Part::Second => Loaded::Second(device.load_floats(values)?),
        })
    }

    /// Replaces one part of a trained tensor, which cannot fail; a frozen one stays as it is.
    pub(super) fn put(&mut self, loaded: Loaded<D>) {
        let Some(training) = &mut self.training else { return };
        match loaded {
            Loaded::Weights(weights, master) => {
                training.master = master;
                self.weights = weights;
            }
            Loaded::First(first) => training.first = first,
            Loaded::Second(second) => training.second = second,
        }
    }

    /// Both at once.
    #[cfg(test)]
    pub(super) fn write(&mut self, device: &D, part: Part, values: &[f32]) -> Result<(), Error> {
        self.put(self.load(device, part, values)?);
        Ok(())
    }

    /// Throws the gradient away.
    pub(super) fn forget(&mut self, device: &D) -> Result<(), Error> {
        match &mut self.training {
            Some(training) => device.clear(&mut training.gradient),
            None => Ok(()),
        }
    }

    /// One step of the optimiser, which also clears the gradient.
    pub(super) fn update(&mut self, device: &D, step: &AdamW) -> Result<(), Error> {
        let decay = if self.decays { step.decay } else { 0.0 };
        let Some(Training { master, gradient, first, second }) = &mut self.training else { return Ok(()) };
        let weights = &mut self.weights;
        device.update(
            &AdamW { decay, ..*step },
            Moments { master: master.as_mut(), weights, gradient, first, second },
        )
    }
}

/// Refuses another number of values: products would read past their end.
fn fits(name: &str, expected: usize, values: &[f32]) -> Result<(), Error> {
    match values.len() {
        found if found == expected => Ok(()),
        found => Err(Error::training(format!("`{name}` has {found} numbers; expected {expected}"))),
    }
}
