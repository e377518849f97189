//! Parquet without Arrow: rows are gathered into a row group, then each column is written with its
//! own type. Every column is optional; nested values are JSON text.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as PhysicalType};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;
use tokio::sync::mpsc;

use super::Namespace;
use super::rows::{ExportRow, Kind, columns};
use super::sink::{Message, next};

/// Rows of one row group, all of which are in memory at once.
const GROUP_ROWS: usize = 1024;

/// Writes rows until they end, and returns how many there were.
pub(super) fn write<W>(namespace: Namespace, mut rows: mpsc::Receiver<Message>, writer: W) -> io::Result<u64>
where
    W: Write + Send,
{
    let schema = schema(namespace).map_err(io::Error::other)?;
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(writer, schema, properties).map_err(io::Error::other)?;
    let mut count = 0;
    let mut group = Vec::with_capacity(GROUP_ROWS);
    while let Some(row) = next(&mut rows)? {
        count += 1;
        group.push(row);
        if group.len() == GROUP_ROWS {
            write_group(&mut file, namespace, &group).map_err(io::Error::other)?;
            group.clear();
        }
    }
    if !group.is_empty() {
        write_group(&mut file, namespace, &group).map_err(io::Error::other)?;
    }
    let mut writer = file.into_inner().map_err(io::Error::other)?;
    writer.flush()?;
    Ok(count)
}

fn schema(namespace: Namespace) -> Result<TypePtr, ParquetError> {
    let mut fields = Vec::new();
    for (name, kind) in columns(namespace) {
        let (physical, converted) = match kind {
            Kind::Text => (PhysicalType::BYTE_ARRAY, ConvertedType::UTF8),
            Kind::Json => (PhysicalType::BYTE_ARRAY, ConvertedType::JSON),
            Kind::Integer => (PhysicalType::INT64, ConvertedType::NONE),
            Kind::Double => (PhysicalType::DOUBLE, ConvertedType::NONE),
            Kind::Boolean => (PhysicalType::BOOLEAN, ConvertedType::NONE),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_converted_type(converted)
            .build()?;
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(Type::group_type_builder("waltz").with_fields(fields).build()?))
}

fn write_group<W>(
    file: &mut SerializedFileWriter<W>,
    namespace: Namespace,
    rows: &[ExportRow],
) -> Result<(), ParquetError>
where
    W: Write + Send,
{
    let mut group = file.next_row_group()?;
    for (name, kind) in columns(namespace) {
        match kind {
            Kind::Text => write_column::<ByteArrayType, W>(&mut group, rows, name, text)?,
            Kind::Json => write_column::<ByteArrayType, W>(&mut group, rows, name, json)?,
            Kind::Integer => write_column::<Int64Type, W>(&mut group, rows, name, Value::as_i64)?,
            Kind::Double => write_column::<DoubleType, W>(&mut group, rows, name, Value::as_f64)?,
            Kind::Boolean => write_column::<BoolType, W>(&mut group, rows, name, Value::as_bool)?,
        }
    }
    group.close()?;
    Ok(())
}

/// Writes one column. A definition level of 1 says that the row has a value, 0 that it has none.
fn write_column<T, W>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[ExportRow],
    name: &str,
    read: impl Fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError>
where
    T: DataType,
    W: Write + Send,
{
    let mut values = Vec::with_capacity(rows.len());
    let mut levels = Vec::with_capacity(rows.len());
    for row in rows {
        let value = row.get(name).and_then(&read);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    let missing = || ParquetError::General(format!("column `{name}` is not in the schema"));
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}

fn text(value: &Value) -> Option<ByteArray> {
    value.as_str().map(ByteArray::from)
}

fn json(value: &Value) -> Option<ByteArray> {
    if value.is_null() { None } else { Some(ByteArray::from(value.to_string().into_bytes())) }
}
