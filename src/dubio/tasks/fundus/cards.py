"""Source cards of the public data sets of fundus photographs."""

from __future__ import annotations

from dubio.core.types import SourceCard

DEEPDRID = SourceCard(
    source="https://github.com/deepdrdoc/DeepDRiD (regular fundus images)",
    revision="v1.1",
    licence="CC BY-SA 4.0",
    citation="R. Liu et al. (2022), DeepDRiD: Diabetic Retinopathy, Grading and Image Quality Estimation Challenge, "
    "Patterns 3, doi:10.1016/j.patter.2022.100512",
    description="Two photographs of each eye from screening projects in China, with grade, quality and project.",
)
IDRID = SourceCard(
    source="https://ieee-dataport.org/open-access/indian-diabetic-retinopathy-image-dataset-idrid (Disease Grading)",
    revision="2018",
    licence="CC BY 4.0",
    citation="P. Porwal et al. (2018), Indian Diabetic Retinopathy Image Dataset (IDRiD), Data 3, "
    "doi:10.3390/data3030025",
    description="Photographs of one eye clinic in India.",
)
MESSIDOR = SourceCard(
    source="https://www.adcis.net/en/third-party/messidor2/ (images), "
    "https://www.kaggle.com/datasets/google-brain/messidor2-dr-grades (adjudicated grades)",
    revision="2018",
    licence="research and education, by agreement with the owners",
    citation="E. Decencière et al. (2014), Feedback on a publicly distributed image database: the Messidor database, "
    "Image Analysis & Stereology 33; J. Krause et al. (2018), Grader variability, Ophthalmology 125",
    description="Examinations of two eyes in French hospitals, with adjudicated grades.",
)
EYEPACS = SourceCard(
    source="https://www.kaggle.com/c/diabetic-retinopathy-detection",
    revision="2015",
    licence="the rules of the competition; research use",
    citation="Kaggle and EyePACS (2015), Diabetic Retinopathy Detection",
    description="Photographs of left and right eyes from screening in the United States, of many cameras.",
)
APTOS = SourceCard(
    source="https://www.kaggle.com/c/aptos2019-blindness-detection",
    revision="2019",
    licence="the rules of the competition; research use",
    citation="Asia Pacific Tele-Ophthalmology Society and Aravind Eye Hospital (2019), APTOS 2019 Blindness Detection",
    description="Photographs from screening in rural India.",
)
OWN = SourceCard(
    source="the user's own photographs",
    revision="as found",
    licence="the owner's",
    citation="the owner's",
    description="The user's own photographs of the eye's background.",
)
