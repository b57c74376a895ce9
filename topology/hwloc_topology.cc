#include "topology/hwloc_topology.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "base/error.h"
#include "base/file_text.h"
#include "base/printable.h"
#include "base/text.h"
#include "topology/xml_file.h"

namespace tutti {
namespace {

constexpr unsigned kReadWithin_s = 30;
// Limit on the operating system's indices of processors and NUMA nodes. hwloc's sets have one bit
// for each smaller index.
constexpr unsigned kLargestIndex = 1 << 20;

HwlocTopology make_topology(Devices devices) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw system_error("hwloc_topology_init", errno);
  HwlocTopology topology(raw);
  // The whole machine is loaded; callers select the allowed part later.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (devices == Devices::include) {
    hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  }
  return topology;
}

void load(const HwlocTopology& topology, const std::string& source) {
  if (hwloc_topology_load(topology.get()) != 0) {
    throw system_error(cat("hwloc cannot read the topology of ", source), errno);
  }
}

// Converts the types of an OS device, which hwloc 3 encodes as bits, to the one type code of hwloc
// 2.
int osdev_type_of_2(unsigned bits) {
  if ((bits & 32) != 0) return 3;  // OpenFabrics
  if ((bits & 16) != 0) return 2;  // network
  if ((bits & 8) != 0) return 5;   // coprocessor, which includes compute GPUs
  if ((bits & 4) != 0) return 1;   // GPU
  if ((bits & 64) != 0) return 4;  // DMA engine
  return 0;                        // storage
}

// Checks an object's index before hwloc parses it, because hwloc would turn -1, or a missing index,
// into a very large value.
void check_number(const XmlFile& file, pugi::xml_node object) {
  const pugi::xml_attribute number = object.attribute("os_index");
  if (!number) file.refuse(object, "a numbered <object> lacks os_index");
  const auto index = static_cast<unsigned>(std::strtoul(number.value(), nullptr, 10));
  if (index > kLargestIndex) {
    file.refuse(object, cat("os_index ", index, " exceeds the limit of ", kLargestIndex));
  }
}

void check_and_convert(const XmlFile& file, pugi::xml_node above, bool of_3, int depth) {
  if (depth > 64) file.refuse(above, "objects are nested more than 64 levels deep");
  for (pugi::xml_node object : above.children("object")) {
    const std::string_view type = object.attribute("type").value();
    if (type.empty()) file.refuse(object, "an <object> has no type");
    hwloc_obj_type_t known{};
    const bool is_known =
        hwloc_type_sscanf(object.attribute("type").value(), &known, nullptr, 0) == 0;
    // hwloc 1 had types that were renamed later.
    if (of_3 && !is_known) {
      file.refuse(object, cat("unknown object type ", in_quotes(type)));
    }
    if (is_known && (known == HWLOC_OBJ_PU || known == HWLOC_OBJ_NUMANODE)) {
      check_number(file, object);
    }
    if (pugi::xml_attribute bits = object.attribute("osdev_type"); of_3 && bits) {
      bits.set_value(osdev_type_of_2(bits.as_uint()));
    }
    check_and_convert(file, object, of_3, depth + 1);
  }
}

HwlocTopology load_text(const std::string& text, const std::string& file, Devices devices) {
  HwlocTopology topology = make_topology(devices);
  if (hwloc_topology_set_xmlbuffer(topology.get(), text.c_str(),
                                   static_cast<int>(text.size()) + 1) != 0) {
    throw Error(ErrorCode::invalid_argument, cat("hwloc rejects the file ", file),
                {.remedy = "write one with `lstopo file.xml`"});
  }
  if (hwloc_topology_load(topology.get()) != 0) {
    throw Error(ErrorCode::invalid_argument, cat("hwloc cannot read the topology of ", file),
                {.cause = "the file may be damaged, or written by a later version of hwloc",
                 .remedy = cat("write it with hwloc ", HWLOC_API_VERSION >> 16)});
  }
  return topology;
}

// Reads the text in a child process first, because hwloc trusts its input, and some damaged files
// crash it.
void try_in_a_child(const std::string& text, const std::string& file, Devices devices) {
  const pid_t child = ::fork();
  if (child < 0) throw system_error("fork", errno);
  if (child == 0) {
    if (const int null = ::open("/dev/null", O_WRONLY); null >= 0) ::dup2(null, STDERR_FILENO);
    ::alarm(kReadWithin_s);
    for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGALRM}) std::signal(signal, SIG_DFL);
    try {
      (void)load_text(text, file, devices).release();
    } catch (...) {  // the parent reads the text as well, and throws the same error
    }
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) {
    throw Error(ErrorCode::invalid_argument, cat("hwloc crashes on the file ", file),
                {.cause = "the file is damaged: for example, objects lack their cpusets",
                 .remedy = "write it again with `lstopo file.xml`"});
  }
}

}  // namespace

Bitmap allowed_set(const HwlocTopology& topology) {
  Bitmap allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology.get())));
  if (hwloc_topology_is_thissystem(topology.get())) {
    Bitmap affinity(hwloc_bitmap_alloc());
    if (hwloc_get_cpubind(topology.get(), affinity.get(), HWLOC_CPUBIND_PROCESS) == 0) {
      hwloc_bitmap_and(allowed.get(), allowed.get(), affinity.get());
    }
  }
  return allowed;
}

HwlocTopology open_this_host(Devices devices) {
  // The file is read here, because hwloc would neither name the file in errors nor read one of
  // another version.
  const char* const file = std::getenv("HWLOC_XMLFILE");
  if (file != nullptr && *file != '\0') {
    return open_hwloc_xml(file_text(file, FileKind::graph, {.where = "HWLOC_XMLFILE"}), file,
                          devices);
  }
  HwlocTopology topology = make_topology(devices);
  load(topology, "this host");
  return topology;
}

HwlocTopology open_hwloc_xml(std::string_view xml, const std::string& file, Devices devices) {
  const XmlFile parsed(xml, file);
  pugi::xml_node root = parsed.child("topology");
  if (!root) {
    parsed.refuse(root, "<topology> is missing", "write the file with `lstopo file.xml`");
  }
  if (root.children("object").empty()) parsed.refuse(root, "<topology> has no <object>");
  pugi::xml_attribute version = root.attribute("version");
  const bool of_3 = std::string_view(version.value()).starts_with("3.");
  check_and_convert(parsed, root, of_3, 0);
  std::string text(xml);
  if (of_3 && HWLOC_API_VERSION < 0x30000) {
    version.set_value("2.0");
    std::ostringstream converted;
    root.root().print(converted);
    text = converted.str();
  }
  try_in_a_child(text, file, devices);
  return load_text(text, file, devices);
}

HwlocTopology open_synthetic_host(const std::string& description) {
  HwlocTopology topology = make_topology(Devices::skip);
  if (hwloc_topology_set_synthetic(topology.get(), description.c_str()) != 0) {
    throw Error(ErrorCode::invalid_argument,
                cat("invalid hwloc synthetic topology '", description, "'"),
                {.remedy = "write it as 'package:2 l3:2 core:4 pu:2'"});
  }
  load(topology, description);
  return topology;
}

std::vector<hwloc_obj_t> objects(const HwlocTopology& topology, hwloc_obj_type_t type) {
  std::vector<hwloc_obj_t> found;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology.get(), type, object)) != nullptr) {
    found.push_back(object);
  }
  return found;
}

}  // namespace tutti
