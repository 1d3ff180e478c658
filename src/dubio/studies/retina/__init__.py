"""The study of diabetic-retinopathy screening (R): its benchmark; its tables and figures are generic sections."""
