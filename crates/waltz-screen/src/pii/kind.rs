//! The sorts of personal data and secrets, and what is said of each.

use serde::Serialize;

/// A sort of personal data or secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PiiKind {
    /// An e-mail address.
    Email,
    /// A telephone number.
    Phone,
    /// A payment card number with a valid check digit.
    Card,
    /// An international bank account number with valid check digits.
    Iban,
    /// A United States social security number.
    Ssn,
    /// A United States taxpayer number.
    Itin,
    /// A United States bank routing number that is called one.
    Routing,
    /// A number of the British health service that is called one.
    Nhs,
    /// A number of a United States health provider that is called one.
    Npi,
    /// An Indian Aadhaar number that is called one.
    Aadhaar,
    /// The number of a vehicle with a valid check digit.
    Vin,
    /// The number of a mobile device that is called one.
    Imei,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// The hardware address of a network card.
    Mac,
    /// An address of a crypto-currency.
    Crypto,
    /// The name of a person, where the words before it say that it is one.
    Person,
    /// A postal address, where a street or a box is named.
    Address,
    /// A key or token of a service.
    ApiKey,
    /// A JSON web token.
    Jwt,
    /// The header of a private key.
    PrivateKey,
    /// A password that is assigned or told.
    Password,
    /// An address of the web with a name and a password in it.
    UrlCredentials,
}

impl PiiKind {
    /// Every sort, in the order of their declaration.
    pub const ALL: [Self; 23] = [
        Self::Email,
        Self::Phone,
        Self::Card,
        Self::Iban,
        Self::Ssn,
        Self::Itin,
        Self::Routing,
        Self::Nhs,
        Self::Npi,
        Self::Aadhaar,
        Self::Vin,
        Self::Imei,
        Self::Ipv4,
        Self::Ipv6,
        Self::Mac,
        Self::Crypto,
        Self::Person,
        Self::Address,
        Self::ApiKey,
        Self::Jwt,
        Self::PrivateKey,
        Self::Password,
        Self::UrlCredentials,
    ];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        self.facts().0
    }

    /// The family of its findings.
    pub(crate) fn family(self) -> String {
        format!("{}.{}", if self.is_secret() { "secret" } else { "pii" }, self.as_str())
    }

    /// The sort of a stable name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// What stands in masked text.
    pub fn placeholder(self) -> &'static str {
        self.facts().1
    }

    /// What was found, in words that are safe to show.
    pub fn description(self) -> &'static str {
        self.facts().2
    }

    /// Name, placeholder and description.
    fn facts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Email => ("email", "[EMAIL]", "an e-mail address"),
            Self::Phone => ("phone", "[PHONE]", "a telephone number"),
            Self::Card => ("card", "[CARD]", "a payment card number"),
            Self::Iban => ("iban", "[IBAN]", "a bank account number (IBAN)"),
            Self::Ssn => ("ssn", "[SSN]", "a US social security number"),
            Self::Itin => ("itin", "[ITIN]", "a US taxpayer number (ITIN)"),
            Self::Routing => ("routing", "[ROUTING]", "a US bank routing number"),
            Self::Nhs => ("nhs", "[NHS]", "a British health service number"),
            Self::Npi => ("npi", "[NPI]", "a US health provider number"),
            Self::Aadhaar => ("aadhaar", "[AADHAAR]", "an Indian Aadhaar number"),
            Self::Vin => ("vin", "[VIN]", "a vehicle identification number"),
            Self::Imei => ("imei", "[IMEI]", "the number of a mobile device (IMEI)"),
            Self::Ipv4 => ("ipv4", "[IPV4]", "an IPv4 address"),
            Self::Ipv6 => ("ipv6", "[IPV6]", "an IPv6 address"),
            Self::Mac => ("mac", "[MAC]", "a hardware address (MAC)"),
            Self::Crypto => ("crypto", "[CRYPTO]", "a crypto-currency address"),
            Self::Person => ("person", "[PERSON]", "the name of a person, by context"),
            Self::Address => ("address", "[ADDRESS]", "a postal address, by context"),
            Self::ApiKey => ("api_key", "[API_KEY]", "a service key or token"),
            Self::Jwt => ("jwt", "[JWT]", "a JSON web token"),
            Self::PrivateKey => ("private_key", "[PRIVATE_KEY]", "a private key"),
            Self::Password => ("password", "[PASSWORD]", "a password"),
            Self::UrlCredentials => ("url_credentials", "[URL_CREDENTIALS]", "a web address with a password"),
        }
    }

    /// Whether it opens something, rather than naming somebody.
    pub fn is_secret(self) -> bool {
        matches!(self, Self::ApiKey | Self::Jwt | Self::PrivateKey | Self::Password | Self::UrlCredentials)
    }

    /// Whether an answer may name it without giving anything away: addresses and numbers to be reached
    /// under, names of persons and machines are often the answer itself, and a password in an answer is
    /// mostly an example.
    pub fn is_common_in_answers(self) -> bool {
        matches!(
            self,
            Self::Email
                | Self::Phone
                | Self::Routing
                | Self::Npi
                | Self::Vin
                | Self::Imei
                | Self::Ipv4
                | Self::Ipv6
                | Self::Mac
                | Self::Crypto
                | Self::Person
                | Self::Address
                | Self::Password
        )
    }

    /// Severity of the bare presence in a text; below 0.5, because naming an address is no harm.
    pub(crate) fn severity(self) -> f32 {
        match self {
            Self::Card | Self::Iban | Self::Ssn | Self::Itin | Self::Nhs | Self::Aadhaar => 0.45,
            Self::Ipv4 | Self::Ipv6 | Self::Mac | Self::Person => 0.1,
            _ => 0.3,
        }
    }
}
