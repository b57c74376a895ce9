#include "training/data/columns.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

// Python program with the arguments path, text, prompt, completion, pairs_only. It writes records:
// a letter, the position in the file (64 bits), the length of a text (32 bits), and the text in
// UTF-8. T: a document; P: a prompt, before its T; E: an error, which is the last record; F: the
// end.
constexpr const char* kProgram = R"py(
import os, struct, sys

out = sys.stdout.buffer
path, text, prompt, completion, pairs_only = sys.argv[1:6]
size = os.path.getsize(path)

def write(kind, position, data):
    out.write(struct.pack("<cQI", kind, position, len(data)) + data)

def fail(message):
    write(b"E", 0, message.encode())
    out.flush()
    sys.exit(0)

try:
    import pyarrow
    import pyarrow.dataset
except ImportError:
    fail("pyarrow")

def is_text(kind):
    types = pyarrow.types
    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    views = [getattr(types, name, None) for name in ("is_string_view", "is_binary_view")]
    tests = [types.is_string, types.is_large_string, types.is_binary, types.is_large_binary]
    return any(test(kind) for test in tests + [view for view in views if view])

def find(schema, name):
    """The names of a column and of the fields in it; a name that is there as it is comes first."""
    kind, names = schema, []
    rest = name
    while True:
        known = [kind.field(i).name for i in range(len(kind.names) if kind is schema else kind.num_fields)]
        if rest in known:
            return names + [rest] if is_text(kind.field(rest).type) else None
        heads = [known_name for known_name in known if rest.startswith(known_name + ".")]
        if not heads:
            return None
        kind = kind.field(heads[0]).type
        names.append(heads[0])
        rest = rest[len(heads[0]) + 1 :]
        if not pyarrow.types.is_struct(kind):
            return None

def values(batch, names):
    column = batch.column(names[0])
    for name in names[1:]:
        column = pyarrow.compute.struct_field(column, name)
    return column.to_pylist()

def mapped(reader, columns):
    """Batches of an Arrow file: views of the mapped pages, a few rows at a time."""
    for index in range(reader.num_record_batches):
        batch = reader.get_batch(index).select(columns)
        for row in range(0, batch.num_rows, 1024):
            yield batch.slice(row, 1024)

def main():
    import pyarrow.compute
    source = None
    if path.lower().endswith(".parquet"):
        try:
            data = pyarrow.dataset.dataset(path, format="parquet")
            rows = data.count_rows()
        except Exception as error:
            fail("format " + str(error).split("\n")[0])
        schema = data.schema
        batches = lambda columns: data.to_batches(
            columns=columns, batch_size=1024, batch_readahead=2, fragment_readahead=1, use_threads=True)
    else:
        try:
            source = pyarrow.memory_map(path)
            try:
                reader = pyarrow.ipc.open_file(source)
                rows = pyarrow.dataset.dataset(path, format="ipc").count_rows()  # by metadata
                batches = lambda columns: mapped(reader, columns)
            except pyarrow.ArrowInvalid:  # a stream, as `datasets` saves it
                source.seek(0)
                reader = pyarrow.ipc.open_stream(source)
                rows = None
                batches = lambda columns: reader
        except Exception as error:
            fail("format " + str(error).split("\n")[0])
        schema = reader.schema
    wanted = None
    if pairs_only == "0" and find(schema, text):
        wanted = [find(schema, text)]
    elif find(schema, prompt) and find(schema, completion):
        wanted = [find(schema, prompt), find(schema, completion)]
    if wanted is None:
        fail("columns " + ", ".join(f"{field.name} ({field.type})" for field in schema))
    kinds = [b"T"] if len(wanted) == 1 else [b"P", b"T"]
    done, before = 0, 0
    for batch in batches(sorted({names[0] for names in wanted})):
        # Of a stream nobody knows how many rows it has, but where each batch ends.
        here = source.tell() if rows is None else 0
        for row, texts in enumerate(zip(*(values(batch, names) for names in wanted)), 1):
            if None in texts:
                continue
            if rows is None:
                position = before + (here - before) * row // batch.num_rows
            else:
                position = size * (done + row) // rows
            for kind, one in zip(kinds, texts):
                write(kind, position, one.encode() if isinstance(one, str) else one)
        done, before = done + batch.num_rows, here
    write(b"F", size, b"")
    out.flush()

try:
    main()
except BrokenPipeError:
    os._exit(0)
except Exception as error:
    fail("format " + str(error).split("\n")[0])
)py";

constexpr size_t kHead = 13;  // bytes before a record's text: letter, position, length

pid_t start(const std::string& python, std::vector<std::string> arguments, Fd& pipe) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw system_error("pipe2", errno);
  pipe = Fd(ends[0]);
  const Fd theirs(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  pid_t pid = -1;
  const int problem =
      ::posix_spawnp(&pid, python.c_str(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) {
    throw system_error(cat("cannot start ", python, ", which reads Parquet and Arrow files"),
                       problem,
                       {.where = "--python", .remedy = "install Python 3, or name its program"});
  }
  return pid;
}

[[noreturn]] void refuse_columns(const std::string& path, const std::string& python,
                                 const DocumentFields& fields, const std::string& message) {
  if (message == "pyarrow") {
    throw Error(
        ErrorCode::unsupported, cat("cannot read ", path, " without pyarrow"),
        {.cause = cat("pyarrow is not installed for ", python),
         .remedy = cat(python,
                       " -m pip install pyarrow; or use a Python that has it: --python PROGRAM")});
  }
  const size_t blank = message.find(' ');
  const std::string rest = blank == message.npos ? "" : message.substr(blank + 1);
  if (message.starts_with("columns ")) {
    const std::string wanted = fields.pairs_only ? "" : cat(" \"", fields.text, "\", nor");
    throw Error(ErrorCode::invalid_argument,
                cat(path, " has no text column", wanted, " \"", fields.prompt, "\" and \"",
                    fields.completion, '"'),
                {.cause = cat("the columns are ", rest), .remedy = "choose one: --field NAME"});
  }
  throw Error(ErrorCode::invalid_argument, cat("cannot read ", path), {.cause = rest});
}

}  // namespace

ColumnReader::ColumnReader(std::string path, const DocumentFields& fields)
    : path_(std::move(path)), python_(fields.python), fields_(fields) {
  if (::access(path_.c_str(), R_OK) != 0) {
    throw system_error(cat("cannot read ", path_), errno,
                       {.remedy = "check the path and its permissions"});
  }
  child_ = start(python_,
                 {python_, "-c", kProgram, path_, fields.text, fields.prompt, fields.completion,
                  fields.pairs_only ? "1" : "0"},
                 pipe_);
}

ColumnReader::~ColumnReader() {
  pipe_.reset();
  ::kill(child_, SIGTERM);
  ::waitpid(child_, nullptr, 0);
}

void ColumnReader::read_exactly(std::span<char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::read(pipe_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw Error(ErrorCode::system, cat("cannot read ", path_),
                  {.cause = cat(python_, " exited before the end of the file"),
                   .remedy = "see its output above"});
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

ColumnReader::Record ColumnReader::read_record() {
  char head[kHead];
  read_exactly(head);
  uint32_t length = 0;
  std::memcpy(&position_, head + 1, sizeof(position_));
  std::memcpy(&length, head + 1 + sizeof(position_), sizeof(length));
  Record record{.kind = head[0], .text = std::string(length, '\0')};
  read_exactly(record.text);
  if (record.kind == 'E') refuse_columns(path_, python_, fields_, record.text);
  return record;
}

std::optional<Document> ColumnReader::next() {
  if (ended_) return std::nullopt;
  Record record = read_record();
  ended_ = record.kind == 'F';
  if (ended_) return std::nullopt;
  Document document;
  if (record.kind == 'P') {
    document.prompt = std::move(record.text);
    record = read_record();
  }
  document.text = std::move(record.text);
  return document;
}

}  // namespace tutti::training
