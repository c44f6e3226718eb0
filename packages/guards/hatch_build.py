"""Builds the package's C++ extension with the system compiler; no torch headers, no torch at build time."""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeExtension(BuildHookInterface):
    """Compiles every ``native/*.cpp`` of the package into one ``_native`` extension beside the sources."""

    def initialize(self, version, build_data):
        if self.target_name != "wheel":
            return
        [package] = (Path(self.root) / "src").glob("opmill_*")
        output = package / ("_native" + sysconfig.get_config_var("EXT_SUFFIX"))
        sources = sorted((package / "native").glob("*.cpp"))
        command = [
            *shlex.split(os.environ.get("CXX", "g++")),
            *("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra"),
            "-I" + sysconfig.get_paths()["include"],
            *map(str, sources),
            *("-o", str(output), "-ldl", "-pthread"),
        ]
        subprocess.run(command, check=True)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(str(output.relative_to(self.root)))
