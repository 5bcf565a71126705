"""Base classes of all errors, functions to show errors, and `explain`.

An error has a code and two templates in the syntax of `str.format`. `what` describes the problem, and `fix` describes
the solution. Most errors are functions with the decorator `problem`. The first paragraph of the docstring is `what`,
the second one is `fix`. The keywords of the function are the fields of the templates:

    @problem(StorageError, "MF4005")
    def path_outside_root(*, path: str, address: str) -> None:
        \"\"\"The path {path!r} is not below {address}.

        Use relative paths without empty parts, '.', '..' or backslashes.
        \"\"\"

`raise path_outside_root(path=path, address=root)` raises a `StorageError`. If the templates have more fields, the
function returns their values as `Computed`.

An error is a class only if code asks for its type, for example in `except`. Then each field of the templates is an
annotated attribute or a property. The constructor takes each annotated attribute as a keyword, which is optional if
the attribute has a value. `what` and `fix` of a class can also be mappings from keys to alternative templates. Then the
property `case` returns the key of the template to use. The list of error codes shows all fixes. It also shows the key
before its fix if the key contains a space or is in capitals. Only a key that describes when to use the fix has this
form.

A field of a template can have a format specification of Python, or one of these format specifications:

- `few` writes the first three names, `names` writes the first five names in quotes.
- `list` writes all values, `quoted` writes all values in quotes.
- `reasons` joins parts of a sentence with semicolons, `lines` joins lines with line breaks.
- `phrase` removes the final period of a text, `short` shortens a text and puts the text in quotes.
- `query` puts a SQL statement in quotes, `argument` puts an argument of a command in quotes if necessary.
- `more` writes a space and the text, or nothing if the text is empty.
- `duration` writes seconds with a suitable unit, `count file` writes "1 file" or "2 files".

A code never changes and is never reused. The first digit of a code with four digits is the topic:

- 1: command and environment, 2: source and change feed, 3: publication,
- 4: storage, Fabric and credentials, 5: archive, 6: permanent history,
- 7: mirror, 8: ledger and alerts.

A code with three digits is for a finding. If the first digit is 8, the finding is from `mirrorfeed doctor`, otherwise
from `mirrorfeed lint`.
"""

from __future__ import annotations

import copyreg
import json
import logging
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from string import Formatter
from traceback import walk_tb
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, TypeVar, cast, dataclass_transform

from mirrorfeed.display.redact import printable, redact, shell_argument
from mirrorfeed.display.rows import Row, as_json, counted, duration, first_names, row

_log = logging.getLogger(__name__)
_LONGEST_LINE = 2000
"""Maximum number of characters of a line of third-party text to search for secrets and show. The rest is cut off."""
_JAVA_CALL = "An error occurred while calling "
"""Start of the first line of an error in Java. The next line has the reason."""
Template = str | Mapping[Any, str]

_FORMS: dict[str, Callable[[Any], str]] = {
    "few": lambda names: first_names([str(name) for name in names]),
    "list": lambda names: ", ".join(map(str, names)),
    "quoted": lambda names: ", ".join(map(repr, names)),
    "names": lambda names: first_names([repr(name) for name in names], 5),
    "reasons": "; ".join,
    "lines": "\n".join,
    "phrase": lambda text: text.rstrip("."),
    "short": reprlib.repr,
    "query": lambda text: repr(" ".join(text.split())),
    "argument": lambda value: shell_argument(str(value)),
    "more": lambda text: f" {text}" if text else "",
    "duration": duration,
}


class _Formatter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if form := _FORMS.get(format_spec):
            return form(value)
        if format_spec.startswith("count "):
            return counted(value, format_spec.removeprefix("count "))
        return str(super().format_field(value, format_spec))


_FORMATTER = _Formatter()


def fill(template: str, values: Mapping[str, Any]) -> str:
    return _FORMATTER.vformat(template, (), values)


def choices(template: Template) -> list[str]:
    return [template] if isinstance(template, str) else list(template.values())


def field_names(template: str) -> Iterator[str]:
    """Yield the names of the values that a template uses, such as `table` for `{table.name}`."""
    for _, field, _, _ in _FORMATTER.parse(template):
        if field:
            yield re.split(r"[.[]", field)[0]


@dataclass_transform(kw_only_default=True)
class MirrorfeedError(Exception):
    """Base class of all errors. Has `code`, `problem`, `solution` and the keywords of the constructor as attributes."""

    code: ClassVar[str]
    what: ClassVar[Template]
    fix: ClassVar[Template] = ""
    meaning: ClassVar[str] = ""
    """Text for the list of error codes, if `what` alone does not explain the error."""
    is_warning: ClassVar[bool] = False
    """True if a run reports the error and continues."""
    computed: Mapping[str, object] = MappingProxyType({})
    """Values for fields of the templates that `problem` computed."""
    required: ClassVar[frozenset[str]]
    """Required keywords of the constructor."""
    optional: ClassVar[dict[str, Any]]
    """Optional keywords of the constructor, with their defaults."""

    def __init_subclass__(cls) -> None:
        declared = {name for each in cls.__mro__ for name in vars(each).get("__annotations__", ())}
        declared -= MirrorfeedError.__annotations__.keys()
        cls.optional = {name: getattr(cls, name) for name in sorted(declared) if hasattr(cls, name)}
        cls.required = frozenset(declared) - cls.optional.keys()

    def __init__(self, **facts: Any) -> None:
        if wrong := (self.required ^ facts.keys()) - self.optional.keys():
            raise TypeError(f"{type(self).__name__} has missing or unknown keywords: {', '.join(sorted(wrong))}")
        self.__dict__.update(self.optional | facts)
        self._note_code()

    @property
    def problem(self) -> str:
        """Description of what failed, and why if the cause is known."""
        return self._format(self.what)

    @property
    def solution(self) -> str:
        """Instructions to solve the problem. Can be empty."""
        return self._format(self.fix)

    @property
    def facts(self) -> dict[str, Any]:
        """Values of the keywords."""
        return {name: value for name, value in vars(self).items() if name not in _DEFINITION}

    @property
    def case(self) -> Any:
        """Key of the template to use for the message of the error.

        A class must define this property if its `what` (problem) or `fix` (solution) has several templates.
        """
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return `code`, `what` (the problem), `next` (the solution) and `facts` (the attributes) without secrets."""
        what, next_ = redact(self.problem), redact(self.solution)
        return {"code": self.code, "what": what, "next": next_, "facts": as_json(self.facts, redact)}

    def message_lines(self) -> Sequence[str]:
        """Return the lines of the message. `__str__` escapes line breaks and other control characters in each line."""
        return [f"{self.problem} {self.solution}".strip()]

    def __str__(self) -> str:
        return "\n".join(printable(redact(line)) for line in self.message_lines())

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), self.__dict__  # type: ignore[attr-defined]

    def _note_code(self) -> None:
        """Let Python show the code below the message of an error that is not caught."""
        self.add_note(f"The code of this error is {self.code}. `mirrorfeed explain` explains each code.")

    def _format(self, template: Template) -> str:
        chosen = template if isinstance(template, str) else template[self.case]
        values = {name: getattr(self, name) for name in field_names(chosen) if name not in self.computed}
        return fill(chosen, {**values, **self.computed})


_DEFINITION = frozenset({"code", "what", "fix", "computed", "__notes__"})
"""Attributes of an error that are no values of keywords."""
Computed = Mapping[str, object]

if TYPE_CHECKING:
    P = ParamSpec("P")
    E = TypeVar("E", bound="MirrorfeedError", covariant=True)

    class TypedErrorFunction(Protocol[P, E]):
        """An `ErrorFunction` with the keywords and the class of its errors."""

        code: str

        def __call__(self, *args: P.args, **facts: P.kwargs) -> E: ...
        def matches(self, error: object) -> bool: ...


@dataclass(frozen=True, eq=False)
class ErrorFunction:
    """Function that returns an error of the class `kind`. Made by `problem`."""

    # Not generic, because the parameters of a generic class cannot be sent to executors that lack the package.
    kind: type[MirrorfeedError]
    code: str
    function: Callable[..., Computed | None]
    meaning: str

    def __call__(self, *args: Any, **facts: Any) -> MirrorfeedError:
        computed = self.function(*args, **facts)  # refuses missing and unknown keywords
        error = self.kind.__new__(self.kind)
        vars(error).update(self.kind.optional | (self.function.__kwdefaults__ or {}) | facts)
        vars(error).update(code=self.code, what=self.what, fix=self.fix, computed=computed or {})
        error._note_code()
        return error

    def matches(self, error: object) -> bool:
        return isinstance(error, MirrorfeedError) and error.code == self.code

    @property
    def what(self) -> str:
        return self._paragraph(0)

    @property
    def fix(self) -> str:
        return self._paragraph(1)

    def _paragraph(self, number: int) -> str:
        # `python -OO` removes docstrings. Then an error has no text, but a code that `mirrorfeed explain` knows.
        paragraphs = (self.function.__doc__ or "").split("\n\n")
        return " ".join(paragraphs[number].split()) if number < len(paragraphs) else ""


def problem(
    kind: type[E], code: str, *, meaning: str = ""
) -> Callable[[Callable[P, Computed | None]], TypedErrorFunction[P, E]]:
    """Return a decorator: calls of the decorated function return an error of the class `kind` with this code.

    `meaning` is the text for the list of error codes, if the first template alone does not explain the error.
    """
    return lambda function: cast(Any, ErrorFunction(kind, code, function, meaning))


class TerminalError(MirrorfeedError):
    """Error that requires a person to act. Repeating the call cannot help."""


class TransientError(MirrorfeedError):
    """Error after which the same call can succeed later, for example if a service is not available."""


class MirrorfeedWarning(MirrorfeedError):
    """Problem that a run reports before it continues. It is never raised."""

    is_warning = True


class ConfigurationError(TerminalError):
    """The configuration or an argument is wrong. Correct it."""


class SourceError(TerminalError):
    """A source table, its change data feed or its rows cannot be read or published. Correct the table or its grants."""


class LandingZoneError(TerminalError):
    """Published files or the log of a table are missing, damaged or foreign. Restore files, or rebuild the table."""


class StorageError(TerminalError):
    """A file or folder cannot be used. Correct its address, or the permissions of the identity."""


class CredentialsError(TerminalError):
    """A login does not work. Renew the secret, the certificate or the role of the identity."""


class SparkError(TerminalError):
    """There is no usable Spark session. Correct the installation or the compute."""


class ArchiveError(TerminalError):
    """A statement, plan or setting for a table with archived files is not possible. Nothing was read or changed."""


class HistoryError(TerminalError):
    """The permanent history of a table cannot be used. Restore it, or choose another one."""


class MirrorError(TerminalError):
    """A mirrored table cannot be read, written or compared. Correct the mirror, or publish the table again."""


class FabricError(TerminalError):
    """Fabric rejects a request. Correct the ids of the database, or ask an administrator of Fabric."""


class ConcurrentPublisherError(TransientError):
    """Another process changes the same table. Repeat the call when only one publisher runs."""


class UnexpectedError(MirrorfeedError):
    """Error of a library, the network or mirrorfeed itself. Repeat the call, or report the problem."""

    code = "MF1000"
    what = "{doing} failed with {kind}: {reason}"
    fix = (
        "No data is lost or duplicated. Run the same command again. If it fails again, see the log for the full"
        " message.{helps:more}"
    )
    helps: str = ""
    meaning = (
        "An error without a specific code occurred in Spark, the network, a library or mirrorfeed. No data is lost or"
        " duplicated."
    )
    doing: str
    kind: str
    reason: str


class SparkSessionLostError(TransientError):
    """The Spark session ended during the call. Repeat the call with a new session."""

    code = "MF1202"
    what = "The Spark session ended: the Spark process died or the cluster was stopped."
    fix = (
        "Run the same command again. It continues where this run stopped, and no data is lost or duplicated. If a local"
        " Spark ran out of memory, set MIRRORFEED_DRIVER_MEMORY to a larger size."
    )


def with_code(error: MirrorfeedError) -> str:
    """Return the code and the message of an error, such as "MF1202: The Spark session ended"."""
    return f"{error.code}: {error}"


def error_name(error: MirrorfeedError) -> str:
    """Return the name of an error in the catalogue, such as "InvalidKey".
    An error without a known code has its class."""
    entry = catalogue().get(error.code)
    return entry.name if entry else type(error).__name__


def with_known_code(name: str) -> str:
    """Return the name of an error after its code, such as "MF3003 InvalidKey". Return an unknown name unchanged."""
    codes = [entry.code for entry in catalogue().values() if entry.name == name]
    return f"{codes[0]} {name}" if codes else name


def wrap_error(doing: str, error: Exception, helps: str = "") -> MirrorfeedError:
    """Return `error` unchanged if it is a `MirrorfeedError`. Convert any other error to a `MirrorfeedError`.

    Called where one table, alert or check ends: there any `Exception` is caught, so that the others continue.

    Another error becomes `SparkSessionLostError` if Spark has ended. Otherwise, it becomes `UnexpectedError`, and the
    traceback is logged. The message of `UnexpectedError` starts with `doing` and ends with `helps`. `doing` is the
    failed operation, such as "Publishing sales.orders". `helps` is a sentence that advises what to do if a second
    attempt also fails.
    """
    if isinstance(error, MirrorfeedError):
        return error
    if has_spark_ended(error):
        return SparkSessionLostError()
    _log.error("%s failed", doing, exc_info=error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = redact(" ".join(line[:_LONGEST_LINE] for line in lines[:3]))[:500]
    return UnexpectedError(doing=doing, kind=type(error).__name__, reason=reason, helps=helps)


def has_spark_ended(error: Exception) -> bool:
    """Return whether a call to Spark on this machine failed because Spark's process ended."""
    if not isinstance(error, ConnectionError) and type(error).__name__ != "Py4JNetworkError":
        return False
    callers = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return any(name.startswith(("py4j.", "pyspark.")) for name in callers)


def innermost_cause(error: Exception) -> str:
    """Return the cause of a Java error: its last "Caused by" line or, if there is none, its first line."""
    causes = [line for line in str(error).splitlines() if line.startswith("Caused by: ")]
    return first_line(causes[-1].removeprefix("Caused by: ") if causes else str(error))


def first_line(text: str) -> str:
    """Return the first line of third-party text for use in a sentence: without secrets and without a final period."""
    lines = (line.strip(" \t:").rstrip(".;") for line in text.splitlines() if not line.startswith(_JAVA_CALL))
    line = next(filter(None, lines), "no reason was given")
    return redact(line[:_LONGEST_LINE])[:300]


@row
class Explanation(Row):
    """Explanation of the code of an error or finding."""

    code: str
    name: str
    kind: str
    """`terminal`, `transient` or `warning` for an error. Command and severity for a finding, such as `lint, error`."""
    means: str
    next: str
    """Instructions, one alternative per line, with placeholders such as <table>."""
    example: str
    """Sample message with sample values. Empty if it would be equal to `means`."""

    def remarks(self) -> Sequence[str]:
        fixes = [f"To do: {fix}" for fix in self.next.split("\n") if fix]
        example = [f"Example: {self.example}"] if self.example else []
        return (f"{self.code} {self.name} ({self.kind})", self.means, *fixes, *example)


@problem(ConfigurationError, "MF1002")
def unknown_code(*, text: str, nearest: tuple[str, ...]) -> Computed:
    """There is no code or name {text:short}.

    Write a code as errors show it, for example MF2102, or the name of an error.{near:more}
    """
    return {"near": f"The nearest codes are {', '.join(nearest)}." if nearest else ""}


def explain(text: str) -> tuple[Explanation, ...]:
    """Return the explanation of the code `text`, such as "MF2102", or of all codes with the name `text`.

    Ignores case, and underscores in names. Raises `unknown_code` if there is no such code or name.
    """
    import difflib  # only `explain` needs it

    known = catalogue()
    stripped = text.strip()
    if entry := known.get(stripped.upper()) or known.get(f"MF{stripped}"):
        return (entry,)
    if with_name := tuple(entry for entry in known.values() if _fold(entry.name) == _fold(stripped)):
        return with_name
    if number := re.fullmatch(r"(?:MF)?(\d{1,9})", stripped, re.IGNORECASE):
        nearest = sorted(known, key=lambda code: abs(int(code[2:]) - int(number[1])))[:3]
    else:
        near = difflib.get_close_matches(stripped, {entry.name for entry in known.values()}, 3)
        nearest = [entry.code for entry in known.values() if entry.name in near]
    raise unknown_code(text=text, nearest=tuple(f"{code} ({known[code].name})" for code in nearest))


def _fold(name: str) -> str:
    return name.replace("_", "").casefold()


@cache
def catalogue() -> dict[str, Explanation]:
    """Return the explanation of each code from `codes.json`. To generate this file from the code, run `make fmt`."""
    from importlib import resources

    listed = json.loads(resources.files(__name__).joinpath("codes.json").read_text(encoding="utf-8"))
    return {each["code"]: Explanation(**each) for each in listed}
